package onnxq_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"onnxquant/internal/layerfit"
	"onnxquant/onnxq"
)

// What interrupted a calibration is told with its context, however often it says that progress is kept, and is no ErrKept.
func TestInterruption(t *testing.T) {
	cut := &fs.PathError{Op: "read", Path: "x.npy", Err: context.Canceled}
	inner := fmt.Errorf("codes: %w", layerfit.Keep(cut))
	for _, c := range []struct {
		err  error
		want string
	}{
		{layerfit.Keep(cut), "read x.npy: context canceled"},
		{inner, "codes: read x.npy: context canceled"},
		{layerfit.Keep(inner), "codes: read x.npy: context canceled"},
		{fmt.Errorf("a.onnx: %w", &layerfit.KeptError{Err: inner}), "a.onnx: codes: read x.npy: context canceled"},
	} {
		got, ok := onnxq.Interruption(c.err)
		if !ok || got.Error() != c.want {
			t.Errorf("%v: %v, %v", c.err, got, ok)
			continue
		}
		told := fmt.Errorf("%w; for an object", got)
		_, kept := errors.AsType[*layerfit.KeptError](told)
		path, is := errors.AsType[*fs.PathError](told)
		if kept || errors.Is(told, onnxq.ErrKept) || !errors.Is(told, context.Canceled) || !is || path != cut {
			t.Errorf("%v: %v", c.err, told)
		}
		if _, again := onnxq.Interruption(told); again {
			t.Errorf("%v is kept", told)
		}
	}
	if _, ok := onnxq.Interruption(cut); ok {
		t.Errorf("%v is kept", cut)
	}
	if got := layerfit.Keep(inner); got != inner {
		t.Errorf("%v", got)
	}
}
