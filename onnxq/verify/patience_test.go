package verify

import (
	"testing"
	"time"
)

// Only an engine that the caller chose may run without end.
func TestPatience(t *testing.T) {
	for _, c := range []struct {
		opts Options
		want time.Duration
	}{
		{Options{}, LeastPatience + time.Minute},
		{Options{Engine: Auto}, LeastPatience + time.Minute},
		{Options{Engine: ORT}, 0},
		{Options{Engine: Auto, Timeout: time.Second}, time.Second},
		{Options{Engine: Go, Timeout: time.Hour}, time.Hour},
	} {
		if got := c.opts.patience(1 << 30); got != c.want {
			t.Errorf("%+v: %v, want %v", c.opts, got, c.want)
		}
	}
}
