package ort

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/ort/wire"
)

// Session is a model that is loaded in a process of its own. It can run many times.
type Session struct {
	// Version is the version of ONNX Runtime.
	Version string
	// Loaded is the time that ONNX Runtime took to load the model.
	Loaded time.Duration

	ctx    context.Context
	cancel context.CancelCauseFunc
	limit  time.Duration // of each run, and of loading
	cmd    *exec.Cmd
	stdin  io.Closer
	conn   *wire.Conn
	stderr head
	dead   error // why there is no process any more
}

// Open starts a process and loads the model at path. Runs can also return the inner values of the
// graph that are named in values; none of them is an output. The end of the context ends the process.
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

// OpenWith starts a process and loads the model at path, with the nodes, initializers and outputs of
// more added. An initializer of the model that is named as an input of more becomes an input that runs
// can replace. Outputs of more may lack a type.
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
	s := &Session{limit: cmp.Or(r.limit, MostPerRun)}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.cmd = exec.CommandContext(s.ctx, r.helper)
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
	response, _, err := s.ask(wire.Request{Load: &wire.Load{Version: wire.Version, Library: r.library, Model: path, More: added, Plain: r.plain, Threads: r.threads, AsUsers: r.asUsers, Profile: r.profile}}, nil)
	if err != nil {
		s.Close()
		return nil, err
	}
	s.Version, s.Loaded = response.Library, response.Loaded
	return s, nil
}

// Run runs the model. It returns the outputs of the given names; without names, all outputs
// of the model.
func (s *Session) Run(inputs []*execute.Tensor, outputs ...string) ([]*execute.Tensor, error) {
	_, results, err := s.ask(wire.Request{Run: &wire.Run{Outputs: outputs}}, inputs)
	return results, err
}

// Bind hands over the inputs of Time, in place of earlier ones.
func (s *Session) Bind(inputs []*execute.Tensor) error {
	_, _, err := s.ask(wire.Request{Bind: &wire.Bind{}}, inputs)
	return err
}

// Time runs the model again and again on the inputs of Bind. It returns the times of the measured runs,
// and the most memory that the process has had, in bytes; 0: unknown.
func (s *Session) Time(t wire.Time) (timing wire.Timing, peak int64, err error) {
	response, _, err := s.ask(wire.Request{Time: &t}, nil)
	if err != nil {
		return timing, 0, err
	}
	return response.Timing, response.Peak, nil
}

// Once runs the model on inputs. It returns the time, or less if other processes took the processors, and the most memory
// that the process has had, in bytes; 0: unknown.
func (s *Session) Once(inputs []*execute.Tensor) (run time.Duration, peak int64, err error) {
	if err := s.Bind(inputs); err != nil {
		return 0, 0, err
	}
	timing, peak, err := s.Time(wire.Time{For: 1, Most: 1})
	if err != nil {
		return 0, 0, err
	}
	run = timing.Runs[0]
	if each := timing.CPU / time.Duration(runtime.NumCPU()); each > 0 {
		run = min(run, each)
	}
	return run, peak, nil
}

// EndProfile ends the profile of a session of Profiling, and returns the path of its file.
func (s *Session) EndProfile() (path string, err error) {
	response, _, err := s.ask(wire.Request{Profile: &wire.Profile{}}, nil)
	if err != nil {
		return "", err
	}
	return response.Profile, nil
}

// Close ends the process.
func (s *Session) Close() {
	if s.dead == nil {
		s.stdin.Close()
		s.cmd.Wait()
		s.dead = errors.New("the session of ONNX Runtime is closed")
	}
	s.cancel(s.dead)
}

func (s *Session) ask(r wire.Request, inputs []*execute.Tensor) (*wire.Response, []*execute.Tensor, error) {
	if s.dead != nil {
		return nil, nil, s.dead
	}
	if r.Time == nil { // that has a limit of its own, between runs
		defer time.AfterFunc(s.limit, func() { s.cancel(tooLong(s.limit)) }).Stop()
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

// ErrEnded is wrapped by errors about a model with which the process of ONNX Runtime ended: it crashed.
var ErrEnded = errors.New("the process of ONNX Runtime ended")

// ErrKilled is an ErrEnded about a process that the user or the system killed: the model may be sound.
var ErrKilled = fmt.Errorf("%w: it was killed", ErrEnded)

// killed reports whether a signal ended a process that does not come from a crash.
func killed(p *os.ProcessState) bool {
	status, ok := p.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && slices.Contains([]syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}, status.Signal())
}

// ended ends the process after an error of the connection, and returns the cause.
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
	ended := ErrEnded
	if killed(s.cmd.ProcessState) {
		ended = ErrKilled
	}
	return fmt.Errorf("%w: %s: %v%s", ended, s.cmd.Path, status, s.stderr.summary())
}

// head keeps the beginning of the text written to it.
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
