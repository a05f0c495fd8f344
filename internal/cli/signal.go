package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// A SignalError is the cause of a context cancelled by a signal. The error of the job
// wraps it.
type SignalError struct{ os.Signal }

func (s SignalError) Error() string { return "stopped by a signal: " + s.String() }

// status returns the exit status that shells use for a process killed by the signal.
func (s SignalError) status() int {
	if number, ok := s.Signal.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return 1
}

// SignalContext returns a context that an interrupt, a termination or a hangup cancels, so
// that jobs clean up. A second signal kills the process.
func SignalContext() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		cancel(SignalError{<-signals})
		signal.Stop(signals)
	}()
	return ctx
}
