//go:build unix

package main

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"
)

func TestSignalContext(t *testing.T) {
	ctx := signalContext()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the signal did not cancel the context")
	}
	var sig signalError
	if !errors.As(context.Cause(ctx), &sig) || sig.Signal != syscall.SIGTERM {
		t.Errorf("cause: %v", context.Cause(ctx))
	}
}
