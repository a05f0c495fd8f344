package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"onnxquant/onnxq"
)

// A signalError is the cause of a context cancelled by a signal. The error of the job
// wraps it.
type signalError struct{ os.Signal }

func (s signalError) Error() string { return "stopped by a signal: " + s.String() }

// alone returns what an error of a job that was stopped says to the user: where the signal came has no
// meaning, only whether the job can go on.
func (s signalError) alone(err error) error {
	if errors.Is(err, onnxq.ErrKept) {
		return fmt.Errorf("%w (%w); --resume goes on from it", s, onnxq.ErrKept)
	}
	return s
}

// status returns the exit status that shells use for a process killed by the signal.
func (s signalError) status() int {
	if number, ok := s.Signal.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return 1
}

// signalContext returns a context that an interrupt, a termination or a hangup cancels, so
// that jobs clean up. A second signal kills the process.
func signalContext() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		cancel(signalError{<-signals})
		signal.Stop(signals)
	}()
	return ctx
}
