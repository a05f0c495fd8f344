package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// A signalError is the cause of a context that a signal cancelled, and so is
// in the error of the job that the context stopped.
type signalError struct{ os.Signal }

func (s signalError) Error() string { return "stopped by a signal: " + s.String() }

// status is what a shell reports for a process that the signal ended.
func (s signalError) status() int {
	if number, ok := s.Signal.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return 1
}

// signalContext returns a context that an interrupt, a termination or the loss of
// the terminal cancels, so that what was begun is cleaned up. A second signal ends the process.
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
