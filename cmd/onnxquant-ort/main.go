// Command onnxquant-ort runs models in ONNX Runtime for onnxquant, which starts it; it is of
// no use alone. It speaks the protocol of package internal/execute/ort/wire on standard input
// and output.
//
// It is a program of its own because it must load a shared library, so it is no static binary
// as onnxquant is, and because a crash of ONNX Runtime ends the process.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"onnxquant/internal/execute"
	"onnxquant/internal/execute/ort/capi"
	"onnxquant/internal/execute/ort/wire"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "onnxquant-ort takes no arguments: onnxquant verify runs it to use ONNX Runtime")
		os.Exit(2)
	}
	// A terminal sends these to onnxquant too, which then ends this program.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	limitMemory()
	conn := wire.NewConn(os.Stdin, os.Stdout)
	var s server
	for r := range receive(conn) {
		if err := s.answer(conn, r); err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "onnxquant-ort:", err)
	os.Exit(1)
}

type request struct {
	wire.Request
	inputs []*execute.Tensor
}

// receive receives requests. It reads while the model runs, to notice that onnxquant has
// ended: then nobody waits for the result.
func receive(conn *wire.Conn) <-chan request {
	requests := make(chan request)
	go func() {
		for {
			var r request
			var err error
			if r.inputs, err = conn.Receive(&r.Request); errors.Is(err, io.EOF) {
				os.Exit(0)
			} else if err != nil {
				fail(fmt.Errorf("cannot read a request: %w", err))
			}
			requests <- r
		}
	}()
	return requests
}

// server answers requests.
type server struct {
	path    string // of the library
	library *capi.Library
	session *capi.Session
}

func (s *server) answer(conn *wire.Conn, r request) error {
	var err error
	switch {
	case r.Load != nil:
		if err = s.load(r.Load); err == nil {
			return conn.Send(&wire.Response{Library: s.library.Version}, nil)
		}
	case r.Run == nil || s.session == nil:
		err = errors.New("no model is loaded")
	default:
		sent := false
		err = s.session.Run(r.inputs, r.Run.Outputs, func(outputs []*execute.Tensor) error {
			sent = true
			return conn.Send(&wire.Response{}, outputs)
		})
		if sent {
			return err
		}
	}
	return conn.Send(&wire.Response{Error: err.Error()}, nil)
}

func (s *server) load(r *wire.Load) error {
	if r.Version != wire.Version {
		return errors.New("onnxquant and onnxquant-ort have different versions; install both again")
	}
	if s.library == nil {
		var err error
		if s.library, err = capi.Open(r.Library); err != nil {
			return err
		}
		s.path = r.Library
	}
	if r.Library != s.path {
		return fmt.Errorf("another library is loaded already: %s", s.path)
	}
	if s.session != nil {
		s.session.Close()
		s.session = nil
	}
	session, err := s.library.NewSession(r)
	s.session = session
	return err
}
