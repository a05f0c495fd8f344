package lazy

import (
	"fmt"
	"io"
	"sync"

	"onnxquant/internal/buffer"
	"onnxquant/internal/shapes"
)

// gathered is the number of bytes that are read at once when the wanted bytes lie in many short
// stretches.
const gathered = 256 << 10

// gathers lends the buffers for them: several workers may read a tensor at once.
var gathers = sync.Pool{New: func() any { return new([]byte) }}

// Sliced returns count elements start, start+step, … along an axis of a stored tensor with elements of
// whole bytes. step is not 0, and the elements exist.
func (x *Tensor) Sliced(axis int, start, step, count int64) *Tensor {
	shape := append([]int64{}, x.Shape...)
	shape[axis] = count
	row := shapes.Count(x.Shape[axis+1:]) * x.DType.Bits() / 8 // bytes of one index of the axis
	s := &slice{r: x.Stored, base: start * row, outer: x.Shape[axis] * row, runs: count, run: row, step: step * row}
	if step == 1 {
		s.runs, s.run, s.step = 1, count*row, count*row
	}
	return Stored(x.DType, shape, s)
}

// slice reads runs of bytes from r. Each outer bytes of r hold the same number of runs, whose
// beginnings are step bytes apart (backwards if step is negative).
type slice struct {
	r           io.ReaderAt
	base, outer int64
	runs        int64
	run, step   int64
}

// at returns where run i begins.
func (s *slice) at(i int64) int64 { return i/s.runs*s.outer + s.base + i%s.runs*s.step }

// Place identifies the bytes of a stored tensor: tensors with equal Place and type have the same
// elements in the same order.
func (x *Tensor) Place() string { return placeOf(x.Stored) }

func placeOf(r io.ReaderAt) string {
	switch r := r.(type) {
	case *slice:
		return fmt.Sprintf("slice(%s %d %d %d %d %d)", placeOf(r.r), r.base, r.outer, r.runs, r.run, r.step)
	case *join:
		text := "join("
		for _, p := range r.parts {
			text += fmt.Sprintf("%s %d ", placeOf(p.r), p.len)
		}
		return text + ")"
	case *transposition:
		return fmt.Sprintf("transposition(%s %d %v)", placeOf(r.r), r.unit, r.axes)
	}
	return fmt.Sprintf("%p", r)
}

// ReadAt implements io.ReaderAt.
func (s *slice) ReadAt(dst []byte, off int64) (n int, err error) {
	for n < len(dst) && err == nil {
		i, within := off/s.run, off%s.run
		want := min(s.run-within, int64(len(dst)-n))
		first := s.at(i) + within
		last, from, end := i, first, first+want // run i up to run last lie in the bytes from … end, which are read at once
		for rest := int64(len(dst)-n) - want; rest > 0; {
			next := s.at(last + 1)
			size := min(s.run, rest)
			low, high := min(from, next), max(end, next+size)
			if high-low > gathered || high-low > 8*(want+size) {
				break
			}
			last, from, end, want, rest = last+1, low, high, want+size, rest-size
		}
		if last == i {
			err = buffer.ReadFull(s.r, dst[n:n+int(want)], first)
		} else {
			err = s.gather(dst[n:n+int(want)], from, end, i, within)
		}
		n, off = n+int(want), off+want
	}
	return n, err
}

// gather reads the bytes from … end of r, and copies run i and the following runs out of them.
func (s *slice) gather(dst []byte, from, end, i, within int64) error {
	lent := gathers.Get().(*[]byte)
	defer gathers.Put(lent)
	all := buffer.Grow(lent, end-from)
	if err := buffer.ReadFull(s.r, all, from); err != nil {
		return err
	}
	for len(dst) > 0 {
		run := min(s.run-within, int64(len(dst)))
		copy(dst[:run], all[s.at(i)+within-from:])
		dst, i, within = dst[run:], i+1, 0
	}
	return nil
}

// Joined joins stored tensors of one type along an axis. All other axes have equal lengths.
func Joined(list []*Tensor, axis int) *Tensor {
	first := list[0]
	shape := append([]int64{}, first.Shape...)
	shape[axis] = 0
	j := &join{}
	for _, x := range list {
		shape[axis] += x.Shape[axis]
		row := shapes.Count(x.Shape[axis:]) * x.DType.Bits() / 8
		if row > 0 {
			j.parts = append(j.parts, stretch{x.Stored, row})
			j.row += row
		}
	}
	return Stored(first.DType, shape, j)
}

// join reads rows of bytes: of each part in turn a stretch, then of each the next one.
type join struct {
	parts []stretch
	row   int64
}

// stretch is a reader of which each row has len bytes.
type stretch struct {
	r   io.ReaderAt
	len int64
}

// ReadAt implements io.ReaderAt.
func (j *join) ReadAt(dst []byte, off int64) (n int, err error) {
	for n < len(dst) && err == nil {
		row, within := off/j.row, off%j.row
		rest := int64(len(dst) - n)
		took := min(j.row-within, rest)
		if rows := min(rest, gathered) / j.row; within == 0 && rows > 1 {
			took = rows * j.row
			err = j.gather(dst[n:n+int(took)], row, rows)
		} else {
			err = j.one(dst[n:n+int(took)], row, within)
		}
		n, off = n+int(took), off+took
	}
	return n, err
}

// one reads a part of a row.
func (j *join) one(dst []byte, row, within int64) error {
	for _, p := range j.parts {
		if within >= p.len {
			within -= p.len
			continue
		}
		n := min(p.len-within, int64(len(dst)))
		if err := buffer.ReadFull(p.r, dst[:n], row*p.len+within); err != nil || n == int64(len(dst)) {
			return err
		}
		dst, within = dst[n:], 0
	}
	return nil
}

// gather reads whole rows, of each part all at once.
func (j *join) gather(dst []byte, row, rows int64) error {
	lent := gathers.Get().(*[]byte)
	defer gathers.Put(lent)
	at := int64(0) // of the part in a row
	for _, p := range j.parts {
		all := buffer.Grow(lent, rows*p.len)
		if err := buffer.ReadFull(p.r, all, row*p.len); err != nil {
			return err
		}
		for i := range rows {
			copy(dst[i*j.row+at:], all[i*p.len:(i+1)*p.len])
		}
		at += p.len
	}
	return nil
}
