package lazy

import (
	"io"
	"slices"

	"onnxquant/internal/buffer"
)

// Transposed returns the elements with axis i of the result being axis perm[i] of a stored tensor
// with elements of whole bytes. perm is a permutation of the axes.
func (x *Tensor) Transposed(perm []int64) *Tensor {
	size := x.DType.Bits() / 8
	steps := make([]int64, len(x.Shape)) // bytes between neighbours along an axis of x
	for i, n := range slices.Backward(x.Shape) {
		steps[i], size = size, size*n
	}
	t := &transposition{r: x.Stored, unit: x.DType.Bits() / 8}
	var shape []int64
	for _, p := range perm {
		shape = append(shape, x.Shape[p])
		if x.Shape[p] > 1 {
			t.add(x.Shape[p], steps[p])
		}
	}
	if last := len(t.axes) - 1; last >= 0 && t.axes[last].step == t.unit {
		t.unit, t.axes = t.axes[last].n*t.unit, t.axes[:last]
	}
	if len(t.axes) == 0 {
		return x.Reshaped(shape)
	}
	return Stored(x.DType, shape, t)
}

// transposition reads units of bytes that remain together, in another order.
type transposition struct {
	r    io.ReaderAt
	unit int64
	axes []axis // of what is read; one of them has neighbours next to each other in r
}

// axis is n indices that are step bytes apart in the original.
type axis struct{ n, step int64 }

// add adds an axis behind the others. Two that are next to each other in the original, too, are one.
func (t *transposition) add(n, step int64) {
	if last := len(t.axes) - 1; last >= 0 && t.axes[last].step == n*step {
		t.axes[last] = axis{t.axes[last].n * n, step}
		return
	}
	t.axes = append(t.axes, axis{n, step})
}

// at returns where unit i begins.
func (t *transposition) at(i int64) (at int64) {
	for _, a := range slices.Backward(t.axes) {
		at += i % a.n * a.step
		i /= a.n
	}
	return at
}

// ReadAt implements io.ReaderAt.
func (t *transposition) ReadAt(dst []byte, off int64) (n int, err error) {
	for n < len(dst) && err == nil {
		i, within := off/t.unit, off%t.unit
		took := int64(len(dst) - n)
		if took -= took % t.unit; within > 0 || took == 0 { // a part of a unit
			took = min(t.unit-within, int64(len(dst)-n))
			err = buffer.ReadFull(t.r, dst[n:n+int(took)], t.at(i)+within)
		} else {
			took, err = t.units(dst[n:n+int(took)], i)
		}
		n, off = n+int(took), off+took
	}
	return n, err
}

// units reads some of the whole units from unit i on, and returns the number of their bytes.
func (t *transposition) units(dst []byte, i int64) (int64, error) {
	inner := int64(1) // units for each index of the axis whose neighbours are next to each other
	k := len(t.axes) - 1
	for ; k > 0 && t.axes[k].step != t.unit; k-- {
		inner *= t.axes[k].n
	}
	count := int64(len(dst)) / t.unit
	if along := min(t.axes[k].n-i/inner%t.axes[k].n, count/inner); i%inner == 0 && along > 1 {
		return along * inner * t.unit, t.rectangle(dst, i, inner, along)
	}
	return t.near(dst, i, min(inner-i%inner, count))
}

// rectangle reads inner units for each of some neighbours: stretches of the original with all these
// neighbours.
func (t *transposition) rectangle(dst []byte, i, inner, along int64) error {
	lent := gathers.Get().(*[]byte)
	defer gathers.Put(lent)
	all := buffer.Grow(lent, along*t.unit)
	for j := range inner {
		if err := buffer.ReadFull(t.r, all, t.at(i+j)); err != nil {
			return err
		}
		for k := range along {
			copy(dst[(k*inner+j)*t.unit:][:t.unit], all[k*t.unit:])
		}
	}
	return nil
}

// tooSparse is how many bytes take as long to read as starting to read once more.
const tooSparse = 1 << 10

// near reads units that have one index along the axis, as many at once as lie near each other.
func (t *transposition) near(dst []byte, i, count int64) (int64, error) {
	from := t.at(i)
	end, n := from+t.unit, int64(1)
	for ; n < count; n++ {
		next := t.at(i + n)
		low, high := min(from, next), max(end, next+t.unit)
		if high-low > max(gathered, t.unit) || high-low > (n+1)*max(tooSparse, 8*t.unit) {
			break
		}
		from, end = low, high
	}
	if n == 1 {
		return t.unit, buffer.ReadFull(t.r, dst[:t.unit], from)
	}
	lent := gathers.Get().(*[]byte)
	defer gathers.Put(lent)
	all := buffer.Grow(lent, end-from)
	if err := buffer.ReadFull(t.r, all, from); err != nil {
		return 0, err
	}
	for j := range n {
		copy(dst[j*t.unit:][:t.unit], all[t.at(i+j)-from:])
	}
	return n * t.unit, nil
}
