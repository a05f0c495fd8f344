// Package work runs tasks on several workers within a budget of memory. Each worker owns its
// buffers.
package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/pbnjay/memory"

	"golang.org/x/sync/errgroup"
)

// DefaultMemory is the budget for buffers, in bytes, if none is asked for.
const DefaultMemory = 64 << 20

// mostAtOnce is the memory that a calibration takes for several layers at once, if a machine has it. Which layers
// are calibrated together, and so the codes, must not depend on what is free at the moment.
const mostAtOnce = 2 << 30

// LayerMemory is the memory, in bytes, that one layer may take in a calibration: what the user asks for or, for
// 0, half of what is free. Most layers need far less.
func LayerMemory(asked int64) int64 {
	return cmp.Or(asked, max(DefaultMemory, cmp.Or(Free(), int64(memory.TotalMemory()))/2))
}

// GroupMemory is the memory, in bytes, that layers which are calibrated together may take, if they are several.
func GroupMemory(asked int64) int64 { return cmp.Or(asked, min(mostAtOnce, LayerMemory(0))) }

// Limits of the number of elements that a worker holds at once. More means fewer system
// calls, fewer means less memory.
const (
	fewest = 1 << 15
	most   = 2 << 20
)

// Check checks the user's number of threads and bytes of memory; 0 means the default.
func Check(threads int, memory int64) error {
	switch {
	case threads < 0:
		return fmt.Errorf("%d threads", threads)
	case memory < 0:
		return fmt.Errorf("%d bytes of memory", memory)
	}
	return nil
}

// Divide divides a budget of memory, in bytes, among at most threads workers (0: the number
// of CPUs). It returns their number and how many elements each may hold at once, if buffers
// take perElement bytes per element.
func Divide(threads int, memory, perElement int64) (workers int, elements int64) {
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	workers = int(min(int64(threads), max(memory/(fewest*perElement), 1)))
	return workers, min(max(memory/int64(workers)/perElement, fewest), most)
}

// Each runs tasks 0, …, n-1 on several workers, each with a B of its own. Tasks start in
// this order. When the context is done, no further task starts, and running ones should
// return soon.
func Each[B any](ctx context.Context, workers, n int, do func(ctx context.Context, b *B, i int) error) error {
	var next atomic.Int64
	g, inner := errgroup.WithContext(ctx)
	for range min(workers, n) {
		g.Go(func() error {
			b := new(B)
			for {
				i := int(next.Add(1)) - 1
				if i >= n || inner.Err() != nil {
					return nil
				}
				if err := do(inner, b, i); err != nil {
					return err
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// Stopped returns the reason why work must stop, or nil. Long tasks call it every few
// milliseconds.
func Stopped(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

// CheckContext returns an error for a nil context, which callers of the API may give.
func CheckContext(ctx context.Context) error {
	if ctx == nil {
		return errors.New("the context is nil: give context.Background()")
	}
	return nil
}
