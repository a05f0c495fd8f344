package half

import (
	"io"
	"math"
	"sync"
	"sync/atomic"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
	"onnxquant/internal/modelfile"
)

// Tally counts what became of the elements of a tensor that were read so far. Elements that
// are read twice count twice.
type Tally struct {
	Vanished atomic.Int64 // became 0
	beyond   atomic.Bool  // a finite element is beyond the type's range
}

// content is the content of a float32 tensor in another type, computed when it is read.
type content struct {
	from  *modelfile.Payload
	to    dtype.DType
	clamp bool // elements beyond the range become the largest one
	tally *Tally
}

// maxStep is the number of elements that are converted at once.
const maxStep = 16 << 10

// buffers hold the elements of a step.
type buffers struct {
	raw []byte
	x   []float32
}

var pool = sync.Pool{New: func() any { return &buffers{make([]byte, 4*maxStep), make([]float32, maxStep)} }}

// ReadAt implements io.ReaderAt.
func (c *content) ReadAt(dst []byte, off int64) (int, error) {
	b := pool.Get().(*buffers)
	defer pool.Put(b)
	for done := 0; done < len(dst); {
		first := (off + int64(done)) / 2
		skip := int((off + int64(done)) % 2)
		n := min((len(dst)-done+skip+1)/2, maxStep)
		if left := c.from.Size()/4 - first; int64(n) > left {
			if n = int(left); n <= 0 {
				return done, io.EOF
			}
		}
		if k, err := c.from.ReadAt(b.raw[:4*n], 4*first); k < 4*n {
			return done, err
		}
		if skip == 0 && len(dst)-done >= 2*n {
			c.convert(dst[done:done+2*n], b.raw[:4*n], b.x[:n])
			done += 2 * n
			continue
		}
		half := make([]byte, 2*n)
		c.convert(half, b.raw[:4*n], b.x[:n])
		done += copy(dst[done:], half[skip:])
	}
	return len(dst), nil
}

// ReadRows implements modelfile.RowReader.
func (c *content) ReadRows(dst []byte, off, rows, n, stride int64) error {
	if off%2 != 0 || n%2 != 0 || stride%2 != 0 || n > 2*maxStep || n == 0 {
		for i := range rows {
			if _, err := c.ReadAt(dst[i*n:(i+1)*n], off+i*stride); err != nil {
				return err
			}
		}
		return nil
	}
	b := pool.Get().(*buffers)
	defer pool.Put(b)
	for at := int64(0); at < rows; {
		k := min(rows-at, 2*maxStep/n)
		elements := k * n / 2
		if err := c.from.ReadRows(b.raw[:4*elements], 2*(off+at*stride), k, 2*n, 2*stride); err != nil {
			return err
		}
		c.convert(dst[at*n:(at+k)*n], b.raw[:4*elements], b.x[:elements])
		at += k
	}
	return nil
}

// Place implements modelfile.Placed.
func (c *content) Place(off int64) modelfile.Place { return c.from.Place(2 * off) }

// convert converts elements, through x, and counts what becomes of them.
func (c *content) convert(dst, raw []byte, x []float32) {
	dtype.Float32.Decode(x, raw)
	beyond, vanished := c.encode(dst, x)
	if vanished > 0 {
		c.tally.Vanished.Add(int64(vanished))
	}
	if beyond == 0 {
		return
	}
	if !c.clamp {
		c.tally.beyond.Store(true)
		return
	}
	limit, _ := limits(c.to)
	for i, v := range x {
		if a := math.Float32bits(v) &^ (1 << 31); a >= limit && a < infinity {
			x[i] = float32(math.Copysign(float64(largest(c.to)), float64(v)))
		}
	}
	c.encode(dst, x)
}

func (c *content) encode(dst []byte, x []float32) (beyond, vanished int) {
	if c.to == dtype.Float16 {
		return kernels.ToFloat16(dst, x)
	}
	return kernels.ToBFloat16(dst, x)
}

// infinity is the bits of float32's infinity.
const infinity = 0x7f800000

// limits returns the bits of the least float32 that rounds to infinity, and of the largest
// that rounds to 0.
func limits(t dtype.DType) (beyond, vanishing uint32) {
	if t == dtype.Float16 {
		return math.Float32bits(65520), math.Float32bits(0x1p-25)
	}
	return 0x7f7f8000, 0x8000
}

// largest is the largest finite number of a type.
func largest(t dtype.DType) float32 {
	if t == dtype.Float16 {
		return 65504
	}
	return math.Float32frombits(0x7f7f0000)
}
