package products

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/linalg"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
	"onnxquant/internal/run/execute/op/reduce"
)

// Heads are the queries, keys or values of an attention: [batch, heads, length, size].
type Heads struct {
	Batch, Count, Length, Size int
	X                          []float32
}

func (h *Heads) matrix(batch, head int) linalg.Matrix {
	n := h.Length * h.Size
	return linalg.Of(h.X[(batch*h.Count+head)*n:][:n], h.Length, h.Size)
}

// NewHeads sees a tensor as heads. One of rank 3 is [batch, length, count·size].
func NewHeads(c *op.Call, t *execute.Tensor, count int64) (*Heads, error) {
	if !t.IsFloat() {
		return nil, op.BadType(t)
	}
	switch {
	case len(t.Dims) == 4:
	case len(t.Dims) == 3 && count > 0 && t.Dims[2]%count == 0:
		split, err := op.Reshaped(t, []int64{t.Dims[0], t.Dims[1], count, t.Dims[2] / count})
		if err != nil {
			return nil, err
		}
		if t, err = c.Transpose(split, []int{0, 2, 1, 3}); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("dims %v for %d heads", t.Dims, count)
	}
	return &Heads{int(t.Dims[0]), int(t.Dims[1]), int(t.Dims[2]), int(t.Dims[3]), op.Floats(t)}, nil
}

// Attention is what happens between queries and keys.
type Attention struct {
	Scale   float32
	Softcap float32 // 0: none

	// Sinks are another score of each query of a head, which takes its part of the softmax. It may be nil.
	Sinks []float32

	// Mask adds to the scores of a query, or sets them to -Inf. It may be nil.
	Mask func(scores []float32, batch, head, query int)

	// See gets a copy of the scores of a head at a stage; see the output qk_matmul_output_mode of ONNX. It may be nil.
	See func(stage, batch, head int, scores []float32)
}

// Compute returns the attention [batch, queries' heads, queries' length, values' size]. Keys and values may
// have fewer heads, which then serve several each.
func (a *Attention) Compute(c *op.Call, q, k, v *Heads) (*Heads, error) {
	if k.Batch != q.Batch || v.Batch != q.Batch || k.Count != v.Count || k.Count == 0 || q.Count%k.Count != 0 || k.Length != v.Length || k.Size != q.Size {
		return nil, fmt.Errorf("queries %d×%d×%d×%d, keys %d×%d×%d×%d and values %d×%d×%d×%d do not fit",
			q.Batch, q.Count, q.Length, q.Size, k.Batch, k.Count, k.Length, k.Size, v.Batch, v.Count, v.Length, v.Size)
	}
	pairs := float64(q.Batch*q.Count) * float64(q.Length) * float64(k.Length)
	if err := c.Spend(pairs * float64(q.Size+v.Size+20)); err != nil {
		return nil, err
	}
	if err := c.Room(dtype.Float32, []int64{int64(q.Length), int64(k.Length)}); err != nil {
		return nil, err
	}
	if err := c.Room(dtype.Float32, []int64{int64(q.Batch * q.Count), int64(q.Length), int64(v.Size)}); err != nil {
		return nil, err
	}
	y := &Heads{q.Batch, q.Count, q.Length, v.Size, make([]float32, q.Batch*q.Count*q.Length*v.Size)}
	scores := make([]float32, q.Length*k.Length)
	for b := range q.Batch {
		for h := range q.Count {
			shared := h / (q.Count / k.Count)
			clear(scores)
			if err := a.head(c, b, h, scores, y.matrix(b, h), q.matrix(b, h), k.matrix(b, shared), v.matrix(b, shared)); err != nil {
				return nil, err
			}
		}
	}
	return y, nil
}

// head computes one head.
func (a *Attention) head(c *op.Call, b, h int, scores []float32, y, q, k, v linalg.Matrix) error {
	n := k.Rows
	if n == 0 || q.Rows == 0 {
		return nil
	}
	s := linalg.Of(scores, q.Rows, n)
	if err := linalg.AddProducts(c.Context(), op.Workers(), []linalg.Product{{C: s, A: q, B: k.T(), Fresh: true}}); err != nil {
		return err
	}
	see := func(stage int) {
		if a.See != nil {
			a.See(stage, b, h, scores)
		}
	}
	for i := range scores {
		scores[i] *= a.Scale
	}
	see(0)
	if a.Softcap > 0 {
		for i, x := range scores {
			scores[i] = a.Softcap * float32(math.Tanh(float64(x/a.Softcap)))
		}
	}
	see(1)
	for i := range q.Rows {
		if a.Mask != nil {
			a.Mask(scores[i*n:][:n], b, h, i)
		}
	}
	see(2)
	var more []float32 // a row of scores and a sink
	if a.Sinks != nil {
		more = make([]float32, n+1)
	}
	for i := range q.Rows {
		row := scores[i*n:][:n]
		if more != nil {
			copy(more, row)
			more[n] = a.Sinks[h]
			reduce.Softmax(more, more)
			copy(row, more)
			continue
		}
		if slices.Max(row) == float32(math.Inf(-1)) { // nothing to look at
			clear(row)
			continue
		}
		reduce.Softmax(row, row)
	}
	see(3)
	return linalg.AddProducts(c.Context(), op.Workers(), []linalg.Product{{C: y, A: s, B: v, Fresh: true}})
}

// Tensor returns the heads as a tensor, of rank 3 if flat.
func (h *Heads) Tensor(c *op.Call, typ dtype.DType, flat bool) (*execute.Tensor, error) {
	t, err := execute.FromFloat32s(typ, []int64{int64(h.Batch), int64(h.Count), int64(h.Length), int64(h.Size)}, h.X)
	if err != nil || !flat {
		return t, err
	}
	if t, err = c.Transpose(t, []int{0, 2, 1, 3}); err != nil {
		return nil, err
	}
	return op.Reshaped(t, []int64{int64(h.Batch), int64(h.Length), int64(h.Count * h.Size)})
}

// Behind puts heads behind those of the past.
func (h *Heads) Behind(past *Heads) (*Heads, error) {
	if past.Batch != h.Batch || past.Count != h.Count || past.Size != h.Size {
		return nil, fmt.Errorf("a past of %d×%d×%d×%d for %d×%d×%d×%d", past.Batch, past.Count, past.Length, past.Size, h.Batch, h.Count, h.Length, h.Size)
	}
	all := &Heads{h.Batch, h.Count, past.Length + h.Length, h.Size, nil}
	for i := range h.Batch * h.Count {
		all.X = append(all.X, past.X[i*past.Length*h.Size:][:past.Length*h.Size]...)
		all.X = append(all.X, h.X[i*h.Length*h.Size:][:h.Length*h.Size]...)
	}
	return all, nil
}

// newMask reads a mask [batch, heads, queries, keys], which is broadcast. Truth values keep scores, numbers are
// added. A shorter mask hides the keys behind it.
func newMask(c *op.Call, t *execute.Tensor, q, k *Heads) (func(scores []float32, batch, head, query int), error) {
	minus := float32(math.Inf(-1))
	if t == nil {
		return func([]float32, int, int, int) {}, nil
	}
	width := int64(k.Length)
	if n := len(t.Dims); n > 0 && t.Dims[n-1] > 1 {
		width = min(width, t.Dims[n-1])
	}
	dims := []int64{int64(q.Batch), int64(q.Count), int64(q.Length), width}
	if len(t.Dims) > 4 {
		return nil, fmt.Errorf("a mask with dims %v", t.Dims)
	}
	if _, err := op.Broadcast(t.Dims, dims); err != nil {
		return nil, err
	}
	steps := op.Spread(t.Dims, dims)
	var x []float32
	switch {
	case t.DType == dtype.Bool:
		x = make([]float32, t.Len())
		for i, keep := range t.Data {
			if keep == 0 {
				x[i] = minus
			}
		}
	case t.IsFloat():
		x = op.Floats(t)
	default:
		return nil, op.BadType(t)
	}
	return func(scores []float32, batch, head, query int) {
		at := int64(batch)*steps[0] + int64(head)*steps[1] + int64(query)*steps[2]
		for j := range scores {
			if int64(j) < width {
				scores[j] += x[at+int64(j)*steps[3]]
			} else {
				scores[j] = minus
			}
		}
	}, nil
}

// runAttention is ONNX's.
func runAttention(c *op.Call) ([]*execute.Tensor, error) {
	x := c.In[0]
	var heads [3]*Heads
	for i := range heads {
		count := c.Int("kv_num_heads", 0)
		if i == 0 {
			count = c.Int("q_num_heads", 0)
		}
		var err error
		if heads[i], err = NewHeads(c, c.In[i], count); err != nil {
			return nil, err
		}
	}
	q, k, v := heads[0], heads[1], heads[2]
	past := 0
	for i, of := range []**Heads{&k, &v} {
		if t := c.Input(4 + i); t != nil {
			before, err := NewHeads(c, t, 0)
			if err != nil {
				return nil, err
			}
			if *of, err = (*of).Behind(before); err != nil {
				return nil, err
			}
			past = before.Length
		}
	}
	a := &Attention{Scale: c.Float("scale", float32(1/math.Sqrt(float64(max(q.Size, 1))))), Softcap: c.Float("softcap", 0)}
	mask, err := newMask(c, c.Input(3), q, k)
	if err != nil {
		return nil, err
	}
	var lengths []int64
	if t := c.Input(6); t != nil {
		if lengths = t.Int64s(); len(lengths) != q.Batch {
			return nil, fmt.Errorf("%d lengths for a batch of %d", len(lengths), q.Batch)
		}
	}
	causal, left, right := c.Is("is_causal"), int(c.Int("left_window_size", -1)), int(c.Int("right_window_size", -1))
	a.Mask = func(scores []float32, batch, head, query int) {
		mask(scores, batch, head, query)
		last := len(scores)
		if lengths != nil {
			last = int(min(max(lengths[batch], 0), int64(last)))
		}
		at := query + past
		if lengths != nil && c.Input(4) == nil {
			at = query + last - q.Length
		}
		if causal {
			last = min(last, max(at+1, 0))
		}
		if right >= 0 {
			last = min(last, max(at+right+1, 0))
		}
		for j := range scores {
			if left >= 0 && j < at-left {
				scores[j] = float32(math.Inf(-1))
			}
		}
		for j := last; j < len(scores); j++ {
			scores[j] = float32(math.Inf(-1))
		}
	}
	var seen []float32
	if c.Wants(3) {
		want := int(c.Int("qk_matmul_output_mode", 0))
		a.See = func(at, _, _ int, scores []float32) {
			if at == want {
				seen = append(seen, scores...)
			}
		}
	}
	y, err := a.Compute(c, q, k, v)
	if err != nil {
		return nil, err
	}
	results := make([]*execute.Tensor, 4)
	if results[0], err = y.Tensor(c, x.DType, len(x.Dims) == 3); err != nil {
		return nil, err
	}
	for i, h := range []*Heads{k, v} {
		if results[1+i], err = h.Tensor(c, c.In[1+i].DType, false); err != nil {
			return nil, err
		}
	}
	if seen != nil {
		results[3], err = execute.FromFloat32s(x.DType, []int64{int64(q.Batch), int64(q.Count), int64(q.Length), int64(k.Length)}, seen)
	}
	return results, err
}

// runRotaryEmbedding turns pairs of elements of each head by angles of positions.
func runRotaryEmbedding(c *op.Call) ([]*execute.Tensor, error) {
	x := c.In[0]
	h, err := NewHeads(c, x, c.Int("num_heads", 0))
	if err != nil {
		return nil, err
	}
	if err := Rotate(h, c.In[1], c.In[2], c.Input(3), int(c.Int("rotary_embedding_dim", 0)), c.Is("interleaved")); err != nil {
		return nil, err
	}
	return op.One(h.Tensor(c, x.DType, len(x.Dims) == 3))
}

// Rotate turns heads by the cosines and sines of positions, which are rows [positions, size/2], or [batch,
// length, size/2] without positions.
func Rotate(h *Heads, cosines, sines, positions *execute.Tensor, size int, interleaved bool) error {
	if size == 0 {
		size = h.Size
	}
	half := size / 2
	cos, sin := cosines.Float32s(), sines.Float32s()
	if size > h.Size || half == 0 || len(cos) != len(sin) || len(cos)%half != 0 {
		return fmt.Errorf("cosines with dims %v for %d of %d elements", cosines.Dims, size, h.Size)
	}
	rows := make([]int64, h.Batch*h.Length)
	for i := range rows {
		rows[i] = int64(i)
	}
	if positions != nil {
		switch list := positions.Int64s(); len(list) {
		case len(rows):
			rows = list
		case 1: // of the first element
			for i := range rows {
				rows[i] = list[0] + int64(i%h.Length)
			}
		default:
			return fmt.Errorf("%d positions for %d × %d elements", len(list), h.Batch, h.Length)
		}
	}
	h.X = slices.Clone(h.X)
	for i := range h.Batch * h.Count * h.Length {
		row := rows[i/(h.Count*h.Length)*h.Length+i%h.Length]
		if row < 0 || int(row) >= len(cos)/half {
			return fmt.Errorf("position %d of %d", row, len(cos)/half)
		}
		vector := h.X[i*h.Size:][:size]
		for k := range half {
			first, second := k, k+half
			if interleaved {
				first, second = 2*k, 2*k+1
			}
			cv, sv := cos[int(row)*half+k], sin[int(row)*half+k]
			a, b := vector[first], vector[second]
			vector[first], vector[second] = float32(a*cv)-float32(b*sv), float32(b*cv)+float32(a*sv)
		}
	}
	return nil
}
