package modelfile

import (
	"io"
	"sync"
)

// Elements is a content whose elements are computed when they are read, each from one element of
// another content.
type Elements struct {
	From    *Payload
	In, Out int64 // bytes of an element of From, and of a computed element; at most 8

	// Make makes the elements from first on of those in raw. x has room for as many numbers.
	Make  func(dst, raw []byte, x []float32, first int64)
	Alike bool // Make does not depend on first

	Round func(x []float32) // rounds float32 elements to values that can be stored; nil if the step is not a rounding
}

// step is how many elements are made at once.
const step = 16 << 10

// stepBuffers hold the elements of a step.
type stepBuffers struct {
	raw, made []byte
	x         []float32
}

var stepPool = sync.Pool{New: func() any {
	return &stepBuffers{make([]byte, 8*step), make([]byte, 8*step), make([]float32, step)}
}}

// Made returns the Elements that compute a content, or nil if it is stored.
func (p *Payload) Made() *Elements {
	e, _ := p.Reader().(*Elements)
	return e
}

// Reader returns what the content is read from, or nil unless it is all of one reader.
func (p *Payload) Reader() io.ReaderAt {
	if len(p.parts) != 1 || p.parts[0].base != 0 {
		return nil
	}
	return p.parts[0].r
}

// Payload returns the computed content as the payload of a tensor.
func (e *Elements) Payload() *Payload { return Computed(e, e.From.Size()/e.In*e.Out) }

// ReadAt implements io.ReaderAt.
func (e *Elements) ReadAt(dst []byte, off int64) (int, error) {
	b := stepPool.Get().(*stepBuffers)
	defer stepPool.Put(b)
	done := 0
	for done < len(dst) {
		at, want := off+int64(done), int64(len(dst)-done)
		first, skip := at/e.Out, at%e.Out
		n := min((skip+want+e.Out-1)/e.Out, step, e.From.Size()/e.In-first)
		if n <= 0 {
			return done, io.EOF
		}
		raw, x := b.raw[:n*e.In], b.x[:n]
		if err := readFull(e.From, raw, first*e.In); err != nil {
			return done, err
		}
		if skip == 0 && n*e.Out <= want {
			e.Make(dst[done:done+int(n*e.Out)], raw, x, first)
			done += int(n * e.Out)
			continue
		}
		made := b.made[:n*e.Out]
		e.Make(made, raw, x, first)
		done += copy(dst[done:], made[skip:])
	}
	return done, nil
}

// ReadRows implements RowReader.
func (e *Elements) ReadRows(dst []byte, off, rows, n, stride int64) error {
	if !e.Alike || off%e.Out != 0 || n%e.Out != 0 || stride%e.Out != 0 || n > e.Out*step || n == 0 {
		for i := range rows {
			if err := readFull(e, dst[i*n:(i+1)*n], off+i*stride); err != nil {
				return err
			}
		}
		return nil
	}
	b := stepPool.Get().(*stepBuffers)
	defer stepPool.Put(b)
	in := func(bytes int64) int64 { return bytes / e.Out * e.In }
	for at := int64(0); at < rows; {
		k := min(rows-at, e.Out*step/n)
		raw := b.raw[:in(k*n)]
		if err := e.From.ReadRows(raw, in(off+at*stride), k, in(n), in(stride)); err != nil {
			return err
		}
		e.Make(dst[at*n:(at+k)*n], raw, b.x[:k*n/e.Out], 0)
		at += k
	}
	return nil
}

// Place implements Placed.
func (e *Elements) Place(off int64) Place { return e.From.Place(off / e.Out * e.In) }
