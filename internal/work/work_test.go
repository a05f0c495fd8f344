package work

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
)

// The budget buys workers first, then elements for each. None holds fewer than pay off, so
// that a small budget is exceeded, nor more than the caches gain from.
func TestDivide(t *testing.T) {
	const perElement = 10
	for _, c := range []struct {
		threads  int
		memory   int64
		workers  int
		elements int64
	}{
		{1, 0, 1, fewest},
		{4, 1, 1, fewest},
		{4, 2 * fewest * perElement, 2, fewest},
		{4, 4 * fewest * perElement, 4, fewest},
		{4, 12 * fewest * perElement, 4, 3 * fewest},
		{1, 12 * fewest * perElement, 1, 12 * fewest},
		{2, 1 << 40, 2, most},
		{0, 1 << 40, runtime.GOMAXPROCS(0), most},
	} {
		workers, elements := Divide(c.threads, c.memory, perElement)
		if workers != c.workers || elements != c.elements {
			t.Errorf("%d threads, %d bytes: %d workers of %d elements, want %d of %d", c.threads, c.memory, workers, elements, c.workers, c.elements)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		threads int
		memory  int64
		ok      bool
	}{{0, 0, true}, {1000, 1, true}, {-1, 0, false}, {0, -1, false}} {
		if err := Check(c.threads, c.memory); (err == nil) != c.ok {
			t.Errorf("%d threads, %d bytes: %v", c.threads, c.memory, err)
		}
	}
}

// Each task is done once. A worker takes them in order and keeps its memory.
func TestEach(t *testing.T) {
	for _, workers := range []int{1, 3, 100} {
		done := make([]atomic.Int64, 20)
		var memories atomic.Int64
		err := Each(context.Background(), workers, len(done), func(_ context.Context, seen *[]int, i int) error {
			if len(*seen) == 0 {
				memories.Add(1)
			}
			*seen = append(*seen, i)
			if !slices.IsSorted(*seen) {
				t.Errorf("%d workers: one has the tasks %v", workers, *seen)
			}
			done[i].Add(1)
			return nil
		})
		if err != nil || memories.Load() > int64(min(workers, len(done))) {
			t.Errorf("%d workers: %v, %d memories", workers, err, memories.Load())
		}
		for i := range done {
			if n := done[i].Load(); n != 1 {
				t.Errorf("%d workers: task %d is done %d times", workers, i, n)
			}
		}
	}
}

// After an error or a cancellation no task begins, and the reason is returned.
func TestEachStops(t *testing.T) {
	broken, closing := errors.New("broken"), errors.New("closing")
	const at, workers = 5, 3
	for _, want := range []error{broken, closing} {
		ctx, cancel := context.WithCancelCause(context.Background())
		var begun atomic.Int64
		err := Each(ctx, workers, 1000, func(ctx context.Context, _ *struct{}, i int) error {
			begun.Add(1)
			switch {
			case i < at:
				return nil
			case i == at && want == broken:
				return broken
			case i == at:
				cancel(closing)
			}
			<-ctx.Done() // the other workers' tasks see it too
			return nil
		})
		if !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
		if n := begun.Load(); n > at+workers {
			t.Errorf("%v: %d tasks begin, stopped at task %d of %d workers", want, n, at, workers)
		}
	}
}

func TestStopped(t *testing.T) {
	closing := errors.New("closing")
	ctx, cancel := context.WithCancelCause(context.Background())
	if err := Stopped(ctx); err != nil {
		t.Errorf("before: %v", err)
	}
	cancel(closing)
	if err := Stopped(ctx); err != closing {
		t.Errorf("afterwards: %v", err)
	}
}
