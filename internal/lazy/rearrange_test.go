package lazy_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/lazy"
	"onnxquant/internal/shapes"
)

// counted is a stored tensor of uint8 or uint16 whose bytes are all different, or nearly.
func counted(r *rand.Rand, typ dtype.DType, shape ...int64) *lazy.Tensor {
	raw := make([]byte, shapes.Count(shape)*typ.Bits()/8)
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	return lazy.Stored(typ, shape, bytes.NewReader(raw))
}

// element returns the bytes of an element.
func element(t *testing.T, x *lazy.Tensor, index []int64) []byte {
	t.Helper()
	at := int64(0)
	for i, n := range x.Shape {
		at = at*n + index[i]
	}
	size := x.DType.Bits() / 8
	b := make([]byte, size)
	if err := buffer.ReadFull(x.Stored, b, at*size); err != nil {
		t.Fatal(err)
	}
	return b
}

// same compares each element of got with the one that from finds, reading got in pieces.
func same(t *testing.T, r *rand.Rand, got *lazy.Tensor, from func(index []int64) []byte) {
	t.Helper()
	size := got.DType.Bits() / 8
	raw := make([]byte, shapes.Count(got.Shape)*size)
	for off := 0; off < len(raw); {
		n := min(1+r.IntN(2*len(raw)), len(raw)-off)
		if err := buffer.ReadFull(got.Stored, raw[off:off+n], int64(off)); err != nil {
			t.Fatal(err)
		}
		off += n
	}
	index := make([]int64, len(got.Shape))
	for i := range int64(len(raw)) / size {
		rest := i
		for k, n := range slices.Backward(got.Shape) {
			index[k], rest = rest%n, rest/n
		}
		if want := from(index); !bytes.Equal(raw[i*size:(i+1)*size], want) {
			t.Fatalf("element %v of %v is %v, want %v", index, got.Shape, raw[i*size:(i+1)*size], want)
		}
	}
}

// Slices, transpositions and joins, also of each other, have the elements that their definition says.
func TestRearranged(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		typ := []dtype.DType{dtype.Uint8, dtype.Float16, dtype.Float32}[r.IntN(3)]
		shape := make([]int64, 1+r.IntN(4))
		for i := range shape {
			shape[i] = 1 + r.Int64N(9)
			if r.IntN(8) == 0 {
				shape[i] = 300
			}
		}
		x := counted(r, typ, shape...)
		axis := r.IntN(len(shape))
		start, step := r.Int64N(shape[axis]), 1+r.Int64N(3)
		count := 1 + r.Int64N((shape[axis]-start-1)/step+1)
		if r.IntN(2) == 0 { // from the end on
			start, step = start+(count-1)*step, -step
		}
		perm := make([]int64, len(shape))
		for i, p := range r.Perm(len(shape)) {
			perm[i] = int64(p)
		}
		turned := func(x *lazy.Tensor) {
			same(t, r, x.Transposed(perm), func(index []int64) []byte {
				at := make([]int64, len(index))
				for i, p := range perm {
					at[p] = index[i]
				}
				return element(t, x, at)
			})
		}
		turned(x)
		s := x.Sliced(axis, start, step, count)
		same(t, r, s, func(index []int64) []byte {
			at := slices.Clone(index)
			at[axis] = start + step*index[axis]
			return element(t, x, at)
		})
		turned(s)
		other := slices.Clone(s.Shape)
		other[axis] = 1 + r.Int64N(5)
		y := counted(r, typ, other...)
		same(t, r, lazy.Joined([]*lazy.Tensor{s, y, s}, axis), func(index []int64) []byte {
			at := slices.Clone(index)
			for _, part := range []*lazy.Tensor{s, y, s} {
				if at[axis] < part.Shape[axis] {
					return element(t, part, at)
				}
				at[axis] -= part.Shape[axis]
			}
			t.Fatal("too many elements")
			return nil
		})
	}
}

// watched counts what is read of a reader, and fails once.
type watched struct {
	io.ReaderAt
	calls, bytes atomic.Int64
	failing      atomic.Bool
}

func (w *watched) ReadAt(b []byte, off int64) (int, error) {
	if w.failing.Swap(false) {
		return 0, errors.New("not now")
	}
	w.calls.Add(1)
	w.bytes.Add(int64(len(b)))
	return w.ReaderAt.ReadAt(b, off)
}

// Whoever reads a turned matrix row by row, or several at once who read some rows each, reads each byte of the
// file about once, and not each element for itself. Parts of a row are no worse.
func TestTransposedReads(t *testing.T) {
	raw := make([]byte, 16<<20)
	for i := range raw {
		raw[i] = byte(i >> 2 * (i & 3))
	}
	for _, c := range []struct {
		rows, cols  int64
		calls, size int64 // the most
	}{
		{2048, 2048, 1 << 15, 1 << 25},
		{64, 65536, 1 << 15, 1 << 25},
		{65536, 64, 1 << 15, 1 << 25},
	} {
		for _, cut := range []bool{false, true} {
			w := &watched{ReaderAt: bytes.NewReader(raw)}
			x := lazy.Stored(dtype.Float32, []int64{c.rows, c.cols}, w).Transposed([]int64{1, 0})
			if cut {
				x = lazy.Joined([]*lazy.Tensor{x.Sliced(1, c.rows/3, 1, c.rows-c.rows/3), x.Sliced(1, 0, 1, c.rows/3)}, 1)
			}
			got := make([]byte, len(raw))
			var group sync.WaitGroup
			const readers, piece = 2, 64 << 10
			for k := range readers {
				group.Go(func() {
					part := len(got) / readers
					for off := k * part; off < (k+1)*part; off += piece {
						if err := buffer.ReadFull(x.Stored, got[off:off+piece], int64(off)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			for i := range c.cols {
				for j := range c.rows {
					from := j
					if cut {
						from = (j + c.rows/3) % c.rows
					}
					if at, of := (i*c.rows+j)*4, (from*c.cols+i)*4; !bytes.Equal(got[at:at+4], raw[of:of+4]) {
						t.Fatalf("%d × %d: element %d, %d is another", c.rows, c.cols, i, j)
					}
				}
			}
			if calls, size := w.calls.Load(), w.bytes.Load(); calls > c.calls || size > c.size {
				t.Errorf("%d × %d, cut %v: %d reads of %d bytes", c.rows, c.cols, cut, calls, size)
			}
		}
	}
}

// What could not be read is tried again.
func TestTransposedReadsAgain(t *testing.T) {
	w := &watched{ReaderAt: bytes.NewReader([]byte{1, 2, 3, 4, 5, 6})}
	x := lazy.Stored(dtype.Uint8, []int64{2, 3}, w).Transposed([]int64{1, 0})
	got := make([]byte, 6)
	w.failing.Store(true)
	if err := buffer.ReadFull(x.Stored, got, 0); err == nil {
		t.Error("no error")
	}
	if err := buffer.ReadFull(x.Stored, got, 0); err != nil || !bytes.Equal(got, []byte{1, 4, 2, 5, 3, 6}) {
		t.Errorf("%v, %v", got, err)
	}
}
