//go:build unix

package cli

import (
	"context"
	"errors"
	"syscall"
	"testing"
)

func TestSignalContext(t *testing.T) {
	ctx := SignalContext()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	var sig SignalError
	if !errors.As(context.Cause(ctx), &sig) || sig.Signal != syscall.SIGTERM {
		t.Errorf("cause: %v", context.Cause(ctx))
	}
}
