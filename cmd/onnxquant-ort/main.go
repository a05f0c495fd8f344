// Command onnxquant-ort runs models in ONNX Runtime for onnxquant, which starts it. Users do not
// call it. It speaks the protocol of package internal/run/execute/ort/wire on standard input and
// output.
//
// It is a separate program for two reasons. It must load a shared library, so it cannot be a static
// binary like onnxquant. And a crash of ONNX Runtime ends only this process.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/ort/capi"
	"onnxquant/internal/run/execute/ort/wire"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "onnxquant-ort takes no arguments: onnxquant verify and bench run it to use ONNX Runtime")
		os.Exit(2)
	}
	// A terminal sends these signals to onnxquant, too. onnxquant then ends this program.
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

// receive receives requests. It also reads while the model runs, to notice that onnxquant has ended
// and nobody waits for the result.
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
	response, err := &wire.Response{}, error(nil)
	switch {
	case r.Load != nil:
		err = s.load(r.Load, response)
	case s.session == nil:
		err = errors.New("no model is loaded")
	case r.Run != nil:
		sent := false
		err = s.session.Run(r.inputs, r.Run.Outputs, func(outputs []*execute.Tensor) error {
			sent = true
			return conn.Send(response, outputs)
		})
		if sent {
			return err
		}
	case r.Bind != nil:
		err = s.session.Bind(r.inputs)
	case r.Time != nil:
		response.Timing, err = s.session.Time(r.Time)
		response.Peak = capi.PeakMemory()
	case r.Profile != nil:
		response.Profile, err = s.session.EndProfile()
	default:
		err = errors.New("a request is empty")
	}
	if err != nil {
		response = &wire.Response{Error: err.Error()}
	}
	return conn.Send(response, nil)
}

func (s *server) load(r *wire.Load, response *wire.Response) error {
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
	start := time.Now()
	session, err := s.library.NewSession(r)
	s.session = session
	response.Library, response.Loaded = s.library.Version, time.Since(start)
	return err
}
