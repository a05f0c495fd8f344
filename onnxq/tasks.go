package onnxq

import (
	"context"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// task is one piece of work: a tile of a weight, or a stretch of a tensor that
// is copied.
type task struct {
	tile    tile
	stretch stretch // meaningful if tile.weight is nil
}

// stretch is a part of a content that is copied, in bytes.
type stretch struct {
	content    int
	start, len int64
}

// The sizes of tasks. Larger ones save calls of the system, smaller ones memory.
const (
	leastTile    = 1 << 15 // elements
	greatestTile = 2 << 20 // elements
	nearTile     = 1 << 19 // elements that the caches hold between two passes, where the layout allows
	copySize     = 1 << 20 // bytes
)

// workers divides a memory budget: it returns how many workers there are, and
// how many elements each may hold at a time.
func workers(threads int, memory int64) (n int, limit int64) {
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	n = int(min(int64(threads), max(memory/(leastTile*elementBytes), 1)))
	return n, min(max(memory/int64(n)/elementBytes, leastTile), greatestTile)
}

// work lists the tasks of a conversion.
func (c *conversion) work() []task {
	var tasks []task
	for _, w := range c.to.weights {
		limit := c.limit
		if w.encoding != nil {
			limit /= 2 // elements are in memory twice
		}
		for t := range w.tiles(limit) {
			tasks = append(tasks, task{tile: t})
		}
	}
	for i, content := range c.to.out.contents {
		if content.copy == nil {
			continue
		}
		for off := int64(0); off < content.size; off += copySize {
			tasks = append(tasks, task{stretch: stretch{i, off, min(copySize, content.size-off)}})
		}
	}
	return tasks
}

// cost is the number of input bytes that a task works on.
func (t *task) cost() int64 {
	if t.tile.weight == nil {
		return t.stretch.len
	}
	return t.tile.d.dtype.Bytes(t.tile.elements())
}

// written is the number of bytes that a task writes, its scales and the like left out.
func (t *task) written() int64 {
	switch {
	case t.tile.weight == nil:
		return t.stretch.len
	case t.tile.weight.codes == nil:
		return 0
	}
	return (t.tile.elements()*int64(t.tile.bits()) + 7) / 8
}

// elements is their number.
func (t tile) elements() int64 {
	if t.n > 0 {
		return t.n
	}
	first, last := t.rows()
	return (last - first) * t.width
}

// eachTask hands tasks 0, …, n-1, in order, to a number of workers. When the context
// is done, no task begins, and those under way end as soon as they ask, see
// buffers.stopped.
func eachTask(ctx context.Context, workers, n int, do func(b *buffers, i int) error) error {
	var next atomic.Int64
	g, inner := errgroup.WithContext(ctx)
	for range min(workers, n) {
		g.Go(func() error {
			b := &buffers{ctx: inner}
			for {
				i := int(next.Add(1)) - 1
				if i >= n || inner.Err() != nil {
					return nil
				}
				if err := do(b, i); err != nil {
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
