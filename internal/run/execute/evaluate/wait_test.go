package evaluate

import (
	"context"
	"errors"
	"testing"
)

// The end of the context ends a run, although a node still computes.
func TestWait(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause, node := errors.New("enough"), make(chan bool)
	defer close(node)
	cancel(cause)
	if _, err := wait(ctx, func() (int, error) { <-node; return 1, nil }); err != cause {
		t.Error(err)
	}
	if v, err := wait(t.Context(), func() (int, error) { return 1, nil }); v != 1 || err != nil {
		t.Error(v, err)
	}
}
