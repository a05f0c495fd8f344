package evaluate

import (
	"errors"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
)

// strides returns the distance of neighbours along each axis, in elements.
func strides(dims []int64) []int64 {
	s := make([]int64, len(dims))
	n := int64(1)
	for i := len(dims) - 1; i >= 0; i-- {
		s[i] = n
		n *= dims[i]
	}
	return s
}

// each calls f for every index of a tensor with the given dims, in row-major order. i and
// j are the sums of the index times the strides a and b.
func each(dims, a, b []int64, f func(i, j int64)) {
	if product(dims) == 0 {
		return
	}
	at := make([]int64, len(dims))
	i, j := int64(0), int64(0)
	for {
		f(i, j)
		k := len(dims) - 1
		for ; k >= 0; k-- {
			at[k]++
			i += a[k]
			j += b[k]
			if at[k] < dims[k] {
				break
			}
			i -= a[k] * dims[k]
			j -= b[k] * dims[k]
			at[k] = 0
		}
		if k < 0 {
			return
		}
	}
}

// view copies the elements of t at start + Σ index·steps. A step of 0 repeats elements, a
// negative one reverses them.
func view(t *execute.Tensor, dims, steps []int64, start int64) (*execute.Tensor, error) {
	out, err := execute.New(t.DType, dims)
	if err != nil {
		return nil, err
	}
	size := int64(t.Size())
	each(dims, strides(dims), steps, func(i, j int64) {
		copy(out.Data[i*size:(i+1)*size], t.Data[(start+j)*size:])
	})
	return out, nil
}

// paste is the inverse of view: it copies the elements of t into out.
func paste(out, t *execute.Tensor, steps []int64, start int64) {
	size := int64(t.Size())
	each(t.Dims, strides(t.Dims), steps, func(i, j int64) {
		copy(out.Data[(start+j)*size:(start+j+1)*size], t.Data[i*size:])
	})
}

func filled(typ dtype.DType, dims []int64, element []byte) (*execute.Tensor, error) {
	t, err := execute.New(typ, dims)
	if err == nil {
		for word := range slices.Chunk(t.Data, max(len(element), 1)) {
			copy(word, element)
		}
	}
	return t, err
}

// broadcast returns the common shape of tensors with the given shapes.
func broadcast(shapes ...[]int64) ([]int64, error) {
	rank := 0
	for _, s := range shapes {
		rank = max(rank, len(s))
	}
	dims := slices.Repeat([]int64{1}, rank)
	for _, s := range shapes {
		for i, d := range s {
			k := rank - len(s) + i
			if dims[k] != 1 && d != 1 && d != dims[k] {
				return nil, fmt.Errorf("cannot broadcast shapes %v", shapes)
			}
			if dims[k] == 1 {
				dims[k] = d
			}
		}
	}
	return dims, nil
}

// expand broadcasts t to dims.
func expand(t *execute.Tensor, dims []int64) (*execute.Tensor, error) {
	if slices.Equal(t.Dims, dims) {
		return t, nil
	}
	lead := len(dims) - len(t.Dims)
	steps := make([]int64, len(dims))
	for i, s := range strides(t.Dims) {
		if t.Dims[i] != 1 {
			steps[lead+i] = s
		}
	}
	return view(t, dims, steps, 0)
}

func transpose(t *execute.Tensor, perm []int) (*execute.Tensor, error) {
	from := strides(t.Dims)
	dims, steps := make([]int64, len(perm)), make([]int64, len(perm))
	for i, p := range perm {
		dims[i], steps[i] = t.Dims[p], from[p]
	}
	return view(t, dims, steps, 0)
}

// slice copies n elements along an axis, from start on.
func slice(t *execute.Tensor, axis int, start, n int64) (*execute.Tensor, error) {
	dims := slices.Clone(t.Dims)
	dims[axis] = n
	s := strides(t.Dims)
	return view(t, dims, s, start*s[axis])
}

// pad adds elements at both ends of each axis. A negative number removes elements.
func pad(t *execute.Tensor, before, after []int64, element []byte) (*execute.Tensor, error) {
	for i := range t.Dims {
		if cut := max(-before[i], 0) + max(-after[i], 0); cut > 0 {
			if cut > t.Dims[i] {
				return nil, errors.New("negative pads remove more elements than there are")
			}
			var err error
			if t, err = slice(t, i, max(-before[i], 0), t.Dims[i]-cut); err != nil {
				return nil, err
			}
		}
	}
	dims := slices.Clone(t.Dims)
	for i := range dims {
		dims[i] += max(before[i], 0) + max(after[i], 0)
	}
	out, err := filled(t.DType, dims, element)
	if err != nil {
		return nil, err
	}
	start := int64(0)
	s := strides(dims)
	for i := range dims {
		start += max(before[i], 0) * s[i]
	}
	paste(out, t, s, start)
	return out, nil
}

func concat(parts []*execute.Tensor, a int) (*execute.Tensor, error) {
	dims := slices.Clone(parts[0].Dims)
	for _, p := range parts[1:] {
		if len(p.Dims) != len(dims) || p.DType != parts[0].DType {
			return nil, errTypes
		}
		for i, d := range p.Dims {
			if i != a && d != dims[i] {
				return nil, fmt.Errorf("cannot concatenate dims %v and %v", dims, p.Dims)
			}
		}
		dims[a] += p.Dims[a]
	}
	out, err := execute.New(parts[0].DType, dims)
	if err != nil {
		return nil, err
	}
	s := strides(dims)
	at := int64(0)
	for _, p := range parts {
		paste(out, p, s, at*s[a])
		at += p.Dims[a]
	}
	return out, nil
}

// reflect pads with mirrored elements.
func reflect(t *execute.Tensor, before, after []int64) (*execute.Tensor, error) {
	for a := range t.Dims {
		n := t.Dims[a]
		if before[a] < 0 || after[a] < 0 || before[a] >= n || after[a] >= n {
			return nil, fmt.Errorf("pads %d and %d in mode reflect: there must be more elements, not %d", before[a], after[a], n)
		}
		places := make([]int64, 0, n+before[a]+after[a])
		for i := -before[a]; i < n+after[a]; i++ {
			j := max(i, -i)
			places = append(places, min(j, 2*(n-1)-j))
		}
		index, err := execute.FromInt64s(dtype.Int64, []int64{int64(len(places))}, places)
		if err != nil {
			return nil, err
		}
		if t, err = gather(t, index, a); err != nil {
			return nil, err
		}
	}
	return t, nil
}
