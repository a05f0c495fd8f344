//go:build unix

package main

import (
	"context"
	"errors"
	"syscall"
	"testing"
)

func TestSignalContext(t *testing.T) {
	ctx := signalContext()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	var sig signalError
	if !errors.As(context.Cause(ctx), &sig) || sig.Signal != syscall.SIGTERM {
		t.Errorf("cause: %v", context.Cause(ctx))
	}
}
