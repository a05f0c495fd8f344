package batch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"onnxquant/internal/process"
	"onnxquant/onnxq/verify"
)

// Program is the onnxquant command, which converts one model at a time in a process of its own.
type Program struct {
	Path string   // of the program
	Env  []string // more of its environment
}

// followKey is the environment variable that makes a conversion end with the batch that started it.
const followKey = "ONNXQUANT_FOLLOW"

// Follow ends this process, a conversion, when the batch that started it is gone, even if that was killed. The program calls it
// first.
func Follow() {
	if os.Getenv(followKey) == "" {
		return
	}
	os.Unsetenv(followKey) // it is for no process that this one starts
	go func() {
		io.Copy(io.Discard, os.Stdin) // the batch keeps it open
		os.Exit(1)
	}()
}

// Convert runs the program for a model.
func (p Program) Convert(ctx context.Context, c Call) (*Result, error) {
	cmd := process.Grouped(ctx, os.Interrupt, p.Path, arguments(&c)...)
	cmd.Env = append(append(os.Environ(), p.Env...), followKey+"=1")
	if os.Getenv("GOMAXPROCS") == "" && c.Threads > 0 {
		cmd.Env = append(cmd.Env, "GOMAXPROCS="+strconv.Itoa(c.Threads))
	}
	const patience = 10 * time.Second // after an interrupt
	cmd.WaitDelay = patience
	if _, err := cmd.StdinPipe(); err != nil { // see Follow
		return nil, err
	}
	stdout, stderr := &limited{most: mostJSON}, &limited{most: mostMessages}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	warnings, message := messages(stderr.String())
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return nil, fmt.Errorf("%s: %w", p.Path, err)
	}
	r, readErr := result(stdout.Bytes(), c.Out)
	switch {
	case err == nil && readErr != nil:
		return nil, fmt.Errorf("%s: the report of the conversion cannot be read: %w", p.Path, readErr)
	case err == nil:
		r.Warnings = warnings
		return r, nil
	case failed.ExitCode() == refusedStatus && readErr == nil && r.Judged != nil:
		return &Result{Judged: r.Judged, Warnings: warnings}, &gateError{message}
	case message != "":
		return &Result{Warnings: warnings}, errors.New(message)
	}
	return &Result{Warnings: warnings}, fmt.Errorf("the conversion ended without a message: %w", err) // such as killed for its memory
}

// refusedStatus is the exit status of a conversion whose output the gate refused.
const refusedStatus = 4

// arguments is the command line of a conversion.
func arguments(c *Call) []string {
	args := slices.Concat(c.Options, []string{"--quiet", "--json"})
	given := func(name string) bool {
		return slices.ContainsFunc(c.Options, func(word string) bool { return word == name || strings.HasPrefix(word, name+"=") })
	}
	if c.Threads > 0 && !given("--threads") && !given("-j") {
		args = append(args, "--threads="+strconv.Itoa(c.Threads))
	}
	if c.Gate != "" {
		args = append(args, "--gate="+string(c.Gate))
	}
	if c.Attest != "" {
		args = append(args, "--attest="+c.Attest)
	}
	return append(args, "--", c.In, c.Out)
}

// gateError is the message of a conversion whose output was refused.
type gateError struct{ message string }

func (e *gateError) Error() string     { return e.message }
func (e *gateError) Is(err error) bool { return err == verify.ErrGate }

// result reads the report that a conversion prints.
func result(raw []byte, out string) (*Result, error) {
	var report struct {
		Plan struct {
			InBytes  int64   `json:"in_bytes"`
			OutBytes int64   `json:"out_bytes"`
			Coverage float64 `json:"coverage"`
		} `json:"plan"`
		Quantized []struct {
			SQNR float64 `json:"sqnr_db"`
		} `json:"quantized"`
		Data     string         `json:"data"`
		MoreData []string       `json:"more_data"`
		Judged   *verify.Judged `json:"judged"`
	}
	if err := json.Unmarshal(raw, &report); err != nil {
		return nil, err
	}
	r := &Result{Outputs: []string{out}, Judged: report.Judged}
	if report.Data != "" {
		r.Outputs = append(append(r.Outputs, report.Data), report.MoreData...)
	}
	for i, path := range r.Outputs[1:] {
		r.Outputs[1+i] = filepath.Join(filepath.Dir(out), filepath.Base(path))
	}
	r.Figures = &Figures{InBytes: report.Plan.InBytes, OutBytes: report.Plan.OutBytes, Coverage: report.Plan.Coverage, Quantized: len(report.Quantized)}
	for _, t := range report.Quantized {
		if worst := r.Figures.WorstSQNR; worst == nil || t.SQNR < *worst {
			r.Figures.WorstSQNR = &t.SQNR
		}
	}
	return r, nil
}

// messages divides what a conversion said into warnings and the last message.
func messages(text string) (warnings []string, last string) {
	const mostWarnings = 50
	for line := range strings.Lines(text) {
		line, ours := strings.CutPrefix(strings.TrimSpace(line), "onnxquant: ")
		warning, isWarning := strings.CutPrefix(line, "warning: ")
		switch {
		case isWarning && len(warnings) < mostWarnings:
			warnings = append(warnings, warning)
		case !isWarning && line != "" && (ours || last == ""):
			last = line
		}
	}
	return warnings, last
}

// How much a conversion may print, in bytes.
const (
	mostJSON     = 256 << 20
	mostMessages = 1 << 20
)

// limited keeps the beginning of what is written to it.
type limited struct {
	bytes.Buffer
	most int
}

func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:max(min(len(p), l.most-l.Len()), 0)])
	return len(p), nil
}
