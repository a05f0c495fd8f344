package ort

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/execute"
	"onnxquant/internal/execute/ort/wire"
	"onnxquant/internal/onnxpb"
)

// Session is a model that is loaded in a process of its own. It can run many times.
type Session struct {
	// Version is that of ONNX Runtime.
	Version string

	ctx    context.Context
	cmd    *exec.Cmd
	stdin  io.Closer
	conn   *wire.Conn
	stderr head
	dead   error // why there is no process any more
}

// Open starts a process and loads the model at path. Runs can also return the values inside
// of the graph that are named in values, none of which is an output. The end of the context
// ends the process.
func (r *Runner) Open(ctx context.Context, path string, values ...string) (*Session, error) {
	if len(values) == 0 {
		return r.OpenWith(ctx, path, nil)
	}
	more := &onnxpb.GraphProto{}
	for _, name := range values {
		more.Output = append(more.Output, &onnxpb.ValueInfoProto{Name: new(name)})
	}
	return r.OpenWith(ctx, path, more)
}

// OpenWith starts a process and loads the model at path, with more nodes, initializers and
// outputs. An initializer of the model that is named as an input of more becomes one that runs
// can replace. A type of an output of more may be missing.
func (r *Runner) OpenWith(ctx context.Context, path string, more *onnxpb.GraphProto) (*Session, error) {
	var added []byte
	if more != nil {
		var err error
		if added, err = proto.Marshal(&onnxpb.ModelProto{Graph: more}); err != nil {
			return nil, err
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	s := &Session{ctx: ctx, cmd: exec.CommandContext(ctx, r.helper)}
	s.cmd.Stderr = &s.stderr
	s.cmd.Env = append(s.cmd.Environ(), "GOTRACEBACK=none") // after a crash, one line is enough
	stdin, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.stdin, s.conn = stdin, wire.NewConn(stdout, stdin)
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot use ONNX Runtime: %w", err)
	}
	response, _, err := s.ask(wire.Request{Load: &wire.Load{Version: wire.Version, Library: r.library, Model: path, More: added, Plain: r.plain, Threads: r.threads}}, nil)
	if err != nil {
		s.Close()
		return nil, err
	}
	s.Version = response.Library
	return s, nil
}

// Run runs the model. It returns the outputs of the given names; without names, all outputs
// of the model.
func (s *Session) Run(inputs []*execute.Tensor, outputs ...string) ([]*execute.Tensor, error) {
	_, results, err := s.ask(wire.Request{Run: &wire.Run{Outputs: outputs}}, inputs)
	return results, err
}

// Close ends the process.
func (s *Session) Close() {
	if s.dead == nil {
		s.stdin.Close()
		s.cmd.Wait()
		s.dead = errors.New("the session of ONNX Runtime is closed")
	}
}

func (s *Session) ask(r wire.Request, inputs []*execute.Tensor) (*wire.Response, []*execute.Tensor, error) {
	if s.dead != nil {
		return nil, nil, s.dead
	}
	var response wire.Response
	var outputs []*execute.Tensor
	err := s.conn.Send(&r, inputs)
	if err == nil {
		outputs, err = s.conn.Receive(&response)
	}
	if err != nil {
		s.dead = s.ended(err)
		return nil, nil, s.dead
	}
	if response.Error != "" {
		return nil, nil, errors.New(oneLine(response.Error))
	}
	return &response, outputs, nil
}

// ended ends the process after an error of the connection, and tells what happened to it.
func (s *Session) ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || strings.Contains(err.Error(), "pipe") {
		err = nil // the process has ended by itself
	} else {
		s.cmd.Process.Kill()
	}
	s.stdin.Close()
	status := s.cmd.Wait()
	switch {
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	case err != nil:
		return fmt.Errorf("%s: %w", s.cmd.Path, err)
	}
	return fmt.Errorf("the process of ONNX Runtime ended: %s: %v%s", s.cmd.Path, status, s.stderr.summary())
}

// head keeps the beginning of what is written to it.
type head struct{ text []byte }

func (h *head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), 4096-len(h.text))]...)
	return len(p), nil
}

// summary returns the lines as one, to be appended to an error, without the stacks that Go
// prints after a crash.
func (h *head) summary() string {
	text, _, _ := strings.Cut(string(h.text), "\nPC=")
	text, _, _ = strings.Cut(text, "\n\n")
	if text = oneLine(text); text == "" {
		return ""
	}
	if runes := []rune(text); len(runes) > 300 {
		text = string(runes[:300]) + "…"
	}
	return ": " + text
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
