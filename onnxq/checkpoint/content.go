package checkpoint

import (
	"fmt"
	"io"
	"slices"
	"sync"

	"onnxquant/formats/dtype"
	"onnxquant/internal/coded"
	"onnxquant/internal/graph"
	"onnxquant/internal/kernels"
	"onnxquant/internal/lazy"
	"onnxquant/internal/msg"
	"onnxquant/internal/reach"
)

// give makes pieces the content of a value: joined along their first axis, transposed where the model has [K,N]. It returns
// the pieces that it took.
func (c *checkpoint) give(x *graph.Graph, v *graph.Value, parts []piece) ([]piece, error) {
	typ := dtype.DType(v.Tensor.GetDataType())
	if s := parts[0].stack; s != nil {
		return parts, x.File.Replace(v.Tensor, s.content(typ, parts[0].codes))
	}
	if order := orderOf(parts); order != nil && onlyProducts(x, v) {
		c.orders[v], parts = order, inGroups(parts)
	}
	if q := together(parts); q != nil {
		down, err := laidIn(x, v, parts[0].name, []int64{q.n, q.k})
		if err != nil {
			return nil, err
		}
		return parts, x.File.Replace(v.Tensor, q.content(parts[0].name, typ, down))
	}
	var list []*lazy.Tensor
	for _, p := range parts {
		t, err := c.elements(v, p, typ)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", msg.Quote(p.name), err)
		}
		list = append(list, t)
	}
	whole := list[0]
	if len(list) > 1 {
		for i, t := range list {
			if len(t.Shape) == 0 || !slices.Equal(t.Shape[1:], list[0].Shape[1:]) {
				return nil, fmt.Errorf("tensor %s has the shape %v, beside %v of %s", msg.Quote(parts[i].name), t.Shape, list[0].Shape, msg.Quote(parts[0].name))
			}
		}
		whole = lazy.Joined(list, 0)
	}
	down, err := laidIn(x, v, parts[0].name, whole.Shape)
	if err != nil {
		return nil, err
	}
	if down {
		return parts, x.File.Replace(v.Tensor, &coded.Transposed{ReaderAt: whole.Transposed([]int64{1, 0}).Stored, From: whole.Stored})
	}
	return parts, x.File.Replace(v.Tensor, whole.Stored)
}

// laidIn reports whether a value of the model has a tensor of that name and shape as [K,N]; it is [N,K].
func laidIn(x *graph.Graph, v *graph.Value, name string, shape []int64) (down bool, err error) {
	dims := v.Tensor.GetDims()
	same := slices.Equal(shape, dims)
	turned := len(dims) == 2 && len(shape) == 2 && shape[0] == dims[1] && shape[1] == dims[0]
	switch {
	case turned && (!same || name != v.Path && sumsOverFirst(x, v)):
		return true, nil
	case !same && !slices.Equal(withoutOnes(shape), withoutOnes(dims)):
		return false, fmt.Errorf("tensor %s has the shape %v; the model's %s has %v", msg.Quote(name), shape, msg.Quote(v.Path), dims)
	}
	return false, nil
}

// together returns the codes that all pieces have in one format, joined, or nil.
func together(parts []piece) *codes {
	var list []*codes
	for _, p := range parts {
		if p.codes == nil || len(parts) > 1 && !p.codes.like(parts[0].codes) {
			return nil
		}
		list = append(list, p.codes)
	}
	if len(list) == 1 {
		return list[0]
	}
	return alongside(list)
}

// elements returns the elements of a piece for v, in a type; of weights as [N,K].
func (c *checkpoint) elements(v *graph.Value, p piece, typ dtype.DType) (*lazy.Tensor, error) {
	if q := p.codes; q != nil {
		return lazy.Stored(typ, []int64{q.n, q.k}, q.content(p.name, typ, false)), nil
	}
	t, err := c.floats(*p.plain)
	if err != nil {
		return nil, err
	}
	if c.plusOne(v, p.name) {
		t = t.Minus(lazy.Constant(-1, dtype.Float32), lazy.OneScale)
	}
	all := lazy.Stored(typ, p.plain.Shape, &encoded{x: t, typ: typ, name: p.name})
	if p.count > 0 {
		all = all.Sliced(0, p.first, 1, p.count)
	}
	return all, nil
}

// sumsOverFirst reports whether a product reads a value as [K,N].
func sumsOverFirst(x *graph.Graph, v *graph.Value) bool {
	for _, l := range reach.Of(x, v, v.Tensor.GetDims()).Leaves {
		if o, weight, why := l.Operand(v.Tensor.GetDims()); weight && why == "" {
			return o.Axis == 0 && len(o.View) == 2
		}
	}
	return false
}

func withoutOnes(shape []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(shape), func(n int64) bool { return n == 1 })
}

// floats returns the elements of a tensor as numbers.
func (c *checkpoint) floats(t tensor) (*lazy.Tensor, error) {
	typ := t.Type.DType()
	_, float8 := lazy.Float8Types[typ]
	if !typ.Float() && !float8 {
		return nil, fmt.Errorf("its type, %s, is no float", t.Type)
	}
	x := t.stored()
	if !float8 {
		return x, nil
	}
	for _, end := range []string{"_scale", "_scale_inv"} {
		if s, ok := c.tensors[t.Name+end]; ok {
			return scaled(x, s)
		}
	}
	return x, nil
}

// blockSide is the length and the width of a block that shares a scale.
const blockSide = 128

// mostScales bounds the scales that are in memory.
const mostScales = 16 << 20

// scaled multiplies elements by the scale of the tensor, of their row or of their block.
func scaled(x *lazy.Tensor, s tensor) (*lazy.Tensor, error) {
	stored := s.stored()
	if len(x.Shape) != 2 || !s.Type.DType().Float() || stored.Size() > mostScales {
		return nil, fmt.Errorf("scales %s of type %s and shape %v do not fit", msg.Quote(s.Name), s.Type, s.Shape)
	}
	rows, columns := x.Shape[0], x.Shape[1]
	high, wide := rows, columns // of a block
	switch n := stored.Size(); {
	case n == 1:
	case n == rows:
		high = 1
	case len(s.Shape) == 2 && s.Shape[0] == (rows+blockSide-1)/blockSide && s.Shape[1] == (columns+blockSide-1)/blockSide:
		high, wide = blockSide, blockSide
	default:
		return nil, fmt.Errorf("scales %s of shape %v do not fit %v: want one, one for each row or for each block of %d × %d", msg.Quote(s.Name), s.Shape, x.Shape, blockSide, blockSide)
	}
	scales := make([]float32, stored.Size())
	if err := stored.ReadAll(&lazy.Arena{}, scales, 0); err != nil {
		return nil, err
	}
	across := (columns + wide - 1) / max(wide, 1)
	return &lazy.Tensor{DType: dtype.Float32, Shape: x.Shape, Read: func(a *lazy.Arena, dst []float32, off int64) error {
		if err := x.Read(a, dst, off); err != nil {
			return err
		}
		for i := range dst {
			row, column := (off+int64(i))/columns, (off+int64(i))%columns
			dst[i] *= scales[row/high*across+column/wide]
		}
		return nil
	}}, nil
}

// encoded has the bytes of a tensor's elements in a type of floats.
type encoded struct {
	x    *lazy.Tensor
	typ  dtype.DType
	name string
}

// scratch is what one reader needs.
type scratch struct {
	arena lazy.Arena
	raw   []byte
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// ReadAt implements io.ReaderAt.
func (e *encoded) ReadAt(dst []byte, off int64) (n int, err error) {
	if e.x.DType == e.typ && e.x.Stored != nil {
		return e.x.Stored.ReadAt(dst, off)
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	if to := kernels.Floats(dst); e.typ == dtype.Float32 && to != nil && off%4 == 0 && len(dst)%4 == 0 {
		return e.direct(s, to, off/4)
	}
	size := e.typ.Bits() / 8
	for n < len(dst) {
		first := (off + int64(n)) / size
		count := min((off+int64(len(dst))-1)/size+1-first, lazy.MaxRead, e.x.Size()-first)
		if count <= 0 {
			return n, io.ErrUnexpectedEOF
		}
		if err := e.encode(s, first, count); err != nil {
			return n, err
		}
		n += copy(dst[n:], s.raw[off+int64(n)-first*size:])
	}
	return n, nil
}

// direct reads float32 elements from first on, without a buffer. It returns the number of bytes.
func (e *encoded) direct(s *scratch, dst []float32, first int64) (n int, err error) {
	there := dst[:min(int64(len(dst)), max(e.x.Size()-first, 0))]
	for at := 0; at < len(there); {
		part := there[at:min(len(there), at+lazy.MaxRead)]
		if err := e.x.Read(&s.arena, part, first+int64(at)); err != nil {
			return 4 * at, fmt.Errorf("tensor %s: %w", msg.Quote(e.name), err)
		}
		at += len(part)
	}
	if len(there) < len(dst) {
		return 4 * len(there), io.ErrUnexpectedEOF
	}
	return 4 * len(dst), nil
}

// encode sets raw to count elements from first on.
func (e *encoded) encode(s *scratch, first, count int64) error {
	x, release := s.arena.Float32s(int(count))
	defer release()
	if err := e.x.Read(&s.arena, x, first); err != nil {
		return fmt.Errorf("tensor %s: %w", msg.Quote(e.name), err)
	}
	s.raw = slices.Grow(s.raw[:0], int(count*e.typ.Bits()/8))[:count*e.typ.Bits()/8]
	e.typ.Encode(s.raw, x)
	if e.typ == dtype.Float32 || e.typ == dtype.Float64 {
		return nil
	}
	back, release := s.arena.Float32s(int(count))
	defer release()
	e.typ.Decode(back, s.raw)
	for i, v := range back {
		if kernels.IsFinite(x[i]) && !kernels.IsFinite(v) {
			return fmt.Errorf("tensor %s holds %v, which %v does not reach", msg.Quote(e.name), x[i], e.typ)
		}
	}
	return nil
}
