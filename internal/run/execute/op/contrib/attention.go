package contrib

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
	"onnxquant/internal/run/execute/op/products"
)

var minus = float32(math.Inf(-1))

// split divides the last axis of a packed tensor into queries, keys and values of these sizes.
func split(c *op.Call, t *execute.Tensor, sizes ...int64) ([]*execute.Tensor, error) {
	var parts []*execute.Tensor
	at, last := int64(0), len(t.Dims)-1
	for _, n := range sizes {
		if at+n > t.Dims[last] {
			return nil, fmt.Errorf("cannot divide dims %v into %v", t.Dims, sizes)
		}
		part, err := c.Slice(t, last, at, n)
		if err != nil {
			return nil, err
		}
		parts, at = append(parts, part), at+n
	}
	return parts, nil
}

// bias adds a tensor [batch or 1, heads or 1, queries, keys] to scores; nil adds nothing.
func bias(t *execute.Tensor, q, k *products.Heads) (func(scores []float32, batch, head, query int), error) {
	if t == nil {
		return func([]float32, int, int, int) {}, nil
	}
	dims := []int64{int64(q.Batch), int64(q.Count), int64(q.Length), int64(k.Length)}
	if got, err := op.Broadcast(t.Dims, dims); err != nil || len(got) != 4 || !t.IsFloat() || len(t.Dims) != 4 || t.Dims[3] != dims[3] {
		return nil, fmt.Errorf("attention_bias with dims %v of type %v", t.Dims, t.DType)
	}
	steps, x := op.Spread(t.Dims, dims), op.Floats(t)
	return func(scores []float32, batch, head, query int) {
		at := batch*int(steps[0]) + head*int(steps[1]) + query*int(steps[2])
		for j := range scores {
			scores[j] += x[at+j]
		}
	}, nil
}

// runGroupQueryAttention computes attention with a cache of keys and values, without quantization of the cache.
func runGroupQueryAttention(c *op.Call) ([]*execute.Tensor, error) {
	x := c.In[0]
	heads, groups := c.Int("num_heads", 0), c.Int("kv_num_heads", 0)
	for i := 14; i < len(c.In); i++ {
		if c.In[i] != nil {
			return nil, op.Unsupported("input %d", i)
		}
	}
	if c.Is("qk_output") || c.Int("causal", 1) != 1 {
		return nil, op.Unsupported("qk_output or causal")
	}
	if len(x.Dims) != 3 || heads < 1 || groups < 1 || len(c.In) < 7 || c.In[5] == nil {
		return nil, fmt.Errorf("dims %v for %d heads", x.Dims, heads)
	}
	parts := []*execute.Tensor{x, c.In[1], c.In[2]}
	if c.In[1] == nil { // packed
		size := x.Dims[2] / (heads + 2*groups)
		var err error
		if parts, err = split(c, x, heads*size, groups*size, groups*size); err != nil {
			return nil, err
		}
	}
	var h [3]*products.Heads
	for i, count := range []int64{heads, groups, groups} {
		var err error
		if h[i], err = products.NewHeads(c, parts[i], count); err != nil {
			return nil, err
		}
	}
	q, k, v := h[0], h[1], h[2]
	totals := c.In[5].Int64s()
	if len(totals) != q.Batch {
		return nil, fmt.Errorf("%d lengths for a batch of %d", len(totals), q.Batch)
	}
	past := make([]int, q.Batch)
	positions := make([]int64, 0, q.Batch*q.Length)
	for b, last := range totals {
		past[b] = max(int(last)+1-q.Length, 0)
		for i := range q.Length {
			positions = append(positions, int64(past[b]+i))
		}
	}
	if c.Is("do_rotary") {
		list := op.Int64([]int64{int64(q.Batch), int64(q.Length)}, positions)
		if t := c.Input(9); t != nil && t.Len() == len(positions) {
			list = t
		}
		if c.Input(7) == nil || c.Input(8) == nil {
			return nil, op.ErrMissingInput
		}
		for _, one := range h[:2] {
			if err := products.Rotate(one, c.In[7], c.In[8], list, 2*int(c.In[7].Dims[1]), c.Is("rotary_interleaved")); err != nil {
				return nil, err
			}
		}
	}
	window := int(c.Int("local_window_size", -1))
	slide, err := newSlide(c, window)
	if err != nil {
		return nil, err
	}
	var held [2]*codes // of the cache, or nil
	for i, of := range []**products.Heads{&k, &v} {
		before := c.Input(3 + i)
		if held[i], err = newCodes(c, i, *of); err != nil {
			return nil, err
		}
		if held[i] != nil {
			held[i].round((*of).X, (*of).Length)
			if before, err = held[i].decoded(before); err != nil {
				return nil, err
			}
		}
		if *of, err = cached(c, *of, before, past, slide); err != nil {
			return nil, err
		}
	}
	add, err := bias(c.Input(10), q, k)
	if err != nil {
		return nil, err
	}
	sinks, err := sinksOf(c, int(heads))
	if err != nil {
		return nil, err
	}
	scale := c.Float("scale", 0)
	if scale == 0 {
		scale = float32(1 / math.Sqrt(float64(q.Size)))
	}
	a := &products.Attention{Scale: scale, Softcap: c.Float("softcap", 0), Sinks: sinks, Mask: func(scores []float32, batch, head, query int) {
		add(scores, batch, head, query)
		at := slide.resident(past[batch]) + query
		for j := range scores {
			if j > at || window > 0 && j <= at-window {
				scores[j] = minus
			}
		}
	}}
	y, err := a.Compute(c, q, k, v)
	if err != nil {
		return nil, err
	}
	results, err := tensors(c, x.DType, y, slide.kept(k, past, q.Length), slide.kept(v, past, q.Length))
	for i := range held {
		if err == nil && held[i] != nil {
			results[1+i] = held[i].encoded(results[1+i])
		}
	}
	return results, err
}

// codes are those of a cache of int8: numbers of a scale, or of one for each channel of each head.
type codes struct {
	scales []float32 // of the channels of all heads
	size   int       // channels of a head
	heads  int
}

// newCodes returns the codes of the cache of keys (0) or values (1), or nil if it has none.
func newCodes(c *op.Call, i int, h *products.Heads) (*codes, error) {
	how := c.Text([]string{"k_quant_type", "v_quant_type"}[i], "NONE")
	if how == "NONE" {
		return nil, nil
	}
	t, before, channels := c.Input(12+i), c.Input(3+i), h.Count*h.Size
	if t == nil || before == nil || before.DType != dtype.Int8 || !t.IsFloat() || t.Len() != 1 && t.Len() != channels {
		return nil, op.Unsupported("a cache of other codes than int8, or other scales than one or %d", channels)
	}
	n := &codes{op.Floats(t), h.Size, h.Count}
	if t.Len() == 1 {
		n.scales = slices.Repeat(n.scales, channels)
	}
	return n, nil
}

// each calls do with the elements of a channel's row, and the scales of these.
func (n *codes) each(x []float32, length int, do func(x, scales []float32)) {
	for at := 0; at+n.size <= len(x); at += n.size {
		head := at / (length * n.size) % n.heads
		do(x[at:][:n.size], n.scales[head*n.size:][:n.size])
	}
}

// round rounds elements as their codes do.
func (n *codes) round(x []float32, length int) {
	n.each(x, length, func(x, scales []float32) {
		for i, s := range scales {
			x[i] = n.code(x[i], s) * s
		}
	})
}

func (n *codes) code(x, scale float32) float32 {
	return float32(min(max(math.RoundToEven(float64(x/scale)), math.MinInt8), math.MaxInt8))
}

// decoded returns the numbers of a cache.
func (n *codes) decoded(t *execute.Tensor) (*execute.Tensor, error) {
	if len(t.Dims) != 4 || t.Dims[1] != int64(n.heads) || t.Dims[3] != int64(n.size) {
		return nil, fmt.Errorf("a past with dims %v", t.Dims)
	}
	x := make([]float32, t.Len())
	for i, code := range t.Data {
		x[i] = float32(int8(code))
	}
	n.each(x, int(t.Dims[2]), func(x, scales []float32) {
		for i, s := range scales {
			x[i] *= s
		}
	})
	return execute.FromFloat32s(dtype.Float32, t.Dims, x)
}

// encoded returns the codes of a cache.
func (n *codes) encoded(t *execute.Tensor) *execute.Tensor {
	y := &execute.Tensor{DType: dtype.Int8, Dims: t.Dims, Data: make([]byte, 0, t.Len())}
	n.each(op.Floats(t), int(t.Dims[2]), func(x, scales []float32) {
		for i, s := range scales {
			y.Data = append(y.Data, byte(int8(n.code(x[i], s))))
		}
	})
	return y
}

// sinksOf returns the sinks of heads, or nil: a smooth softmax has sinks of 0.
func sinksOf(c *op.Call, heads int) ([]float32, error) {
	t := c.Input(11)
	switch {
	case t != nil && (!t.IsFloat() || t.Len() != heads):
		return nil, fmt.Errorf("a head_sink with dims %v for %d heads", t.Dims, heads)
	case t != nil:
		return op.Floats(t), nil
	case c.Is("smooth_softmax"):
		return make([]float32, heads), nil
	}
	return nil, nil
}

// slide is a cache that drops old positions. The zero slide drops none.
type slide struct{ capacity, window int }

func newSlide(c *op.Call, window int) (slide, error) {
	if !c.Is("sliding_window_cache") {
		return slide{}, nil
	}
	keys := c.Input(3)
	if keys == nil || len(keys.Dims) != 4 || window < 1 || keys.Dims[2] < int64(window) || c.Input(10) != nil {
		return slide{}, op.Unsupported("sliding_window_cache with a window of %d, without a cache of that length, or with attention_bias", window)
	}
	return slide{int(keys.Dims[2]), window}, nil
}

// resident is how many of the last positions the cache has, of n that there were.
func (s slide) resident(n int) int {
	if s.window == 0 || n <= s.capacity {
		return n
	}
	step := s.capacity - s.window + 1
	return n - (n-s.capacity+step-1)/step*step
}

// kept returns the cache after a step of some positions. all has what was in the cache before, and these positions behind.
func (s slide) kept(all *products.Heads, past []int, step int) *products.Heads {
	if s.window == 0 {
		return all
	}
	y := &products.Heads{Batch: all.Batch, Count: all.Count, Length: s.capacity, Size: all.Size}
	y.X = make([]float32, y.Batch*y.Count*y.Length*y.Size)
	for i := range y.Batch * y.Count {
		before := past[i/y.Count]
		end, n := s.resident(before)+step, s.resident(before+step)
		copy(y.X[i*y.Length*y.Size:], all.X[(i*all.Length+end-n)*all.Size:][:n*all.Size])
	}
	return y
}

// cached writes heads behind those of the past, which each sequence has its own length of.
func cached(c *op.Call, h *products.Heads, t *execute.Tensor, past []int, s slide) (*products.Heads, error) {
	before := &products.Heads{Batch: h.Batch, Count: h.Count, Size: h.Size}
	if t != nil {
		var err error
		if before, err = products.NewHeads(c, t, 0); err != nil {
			return nil, err
		}
		if before.Batch != h.Batch || before.Count != h.Count || before.Size != h.Size {
			return nil, fmt.Errorf("a past with dims %v", t.Dims)
		}
	}
	length := before.Length
	for _, n := range past {
		if s.resident(n) > before.Length {
			return nil, fmt.Errorf("a past of %d, of which %d are used", before.Length, n)
		}
		length = max(length, s.resident(n)+h.Length)
	}
	if err := c.Room(dtype.Float32, []int64{int64(h.Batch), int64(h.Count), int64(length), int64(h.Size)}); err != nil {
		return nil, err
	}
	all := &products.Heads{Batch: h.Batch, Count: h.Count, Length: length, Size: h.Size, X: make([]float32, h.Batch*h.Count*length*h.Size)}
	for i := range h.Batch * h.Count {
		to := all.X[i*length*h.Size:][:length*h.Size]
		copy(to, before.X[i*before.Length*h.Size:][:before.Length*h.Size])
		copy(to[s.resident(past[i/h.Count])*h.Size:], h.X[i*h.Length*h.Size:][:h.Length*h.Size])
	}
	return all, nil
}

// tensors returns an output and the keys and values of all steps.
func tensors(c *op.Call, typ dtype.DType, y, k, v *products.Heads) ([]*execute.Tensor, error) {
	out, err := y.Tensor(c, typ, true)
	if err != nil {
		return nil, err
	}
	keys, err := k.Tensor(c, typ, false)
	if err != nil {
		return nil, err
	}
	values, err := v.Tensor(c, typ, false)
	return []*execute.Tensor{out, keys, values}, err
}

// runMultiHeadAttention takes queries, keys and values [batch, length, hidden], with biases and a past.
func runMultiHeadAttention(c *op.Call) ([]*execute.Tensor, error) {
	x, heads := c.In[0], c.Int("num_heads", 0)
	if len(x.Dims) != 3 || c.Input(1) == nil || c.Input(2) == nil || heads < 1 {
		return nil, op.Unsupported("packed inputs, dims %v", x.Dims)
	}
	for i := 8; i < len(c.In); i++ {
		if c.In[i] != nil {
			return nil, op.Unsupported("input %d", i)
		}
	}
	var h [3]*products.Heads
	at := int64(0)
	for i := range h {
		t := c.In[i]
		if len(t.Dims) == 3 {
			var err error
			if t, err = addBias(c, t, c.Input(3), at); err != nil {
				return nil, err
			}
			at += t.Dims[2]
		}
		var err error
		if h[i], err = products.NewHeads(c, t, heads); err != nil {
			return nil, err
		}
	}
	for i := range 2 {
		if t := c.Input(6 + i); t != nil {
			before, err := products.NewHeads(c, t, 0)
			if err != nil {
				return nil, err
			}
			if h[1+i], err = h[1+i].Behind(before); err != nil {
				return nil, err
			}
		}
	}
	return attended(c, h, c.Input(4), c.Input(5))
}

// runAttention computes queries, keys and values by one product.
func runAttention(c *op.Call) ([]*execute.Tensor, error) {
	x, heads := c.In[0], c.Int("num_heads", 0)
	if len(x.Dims) != 3 || c.Input(4) != nil || c.Is("do_rotary") || heads < 1 || len(c.In[1].Dims) != 2 {
		return nil, op.Unsupported("a past, do_rotary or dims %v", x.Dims)
	}
	t, err := products.MatMul(c, x, c.In[1])
	if err != nil {
		return nil, err
	}
	if t, err = addBias(c, t, c.Input(2), 0); err != nil {
		return nil, err
	}
	third := t.Dims[2] / 3
	parts, err := split(c, t, c.Ints("qkv_hidden_sizes", []int64{third, third, third})...)
	if err != nil {
		return nil, err
	}
	var h [3]*products.Heads
	if len(parts) != 3 {
		return nil, fmt.Errorf("%d qkv_hidden_sizes", len(parts))
	}
	for i := range h {
		if h[i], err = products.NewHeads(c, parts[i], heads); err != nil {
			return nil, err
		}
	}
	return attended(c, h, c.Input(3), c.Input(5))
}

// attended computes attention with a mask of keys [batch, keys] or their number [batch], and a bias.
func attended(c *op.Call, h [3]*products.Heads, mask, more *execute.Tensor) ([]*execute.Tensor, error) {
	q, k := h[0], h[1]
	add, err := bias(more, q, k)
	if err != nil {
		return nil, err
	}
	hidden := func(batch, key int) bool { return false }
	if mask != nil {
		list := mask.Int64s()
		switch {
		case len(mask.Dims) == 2 && len(list) == q.Batch*k.Length:
			hidden = func(batch, key int) bool { return list[batch*k.Length+key] == 0 }
		case len(mask.Dims) == 1 && len(list) == q.Batch:
			hidden = func(batch, key int) bool { return key >= int(list[batch]) }
		default:
			return nil, op.Unsupported("a mask with dims %v", mask.Dims)
		}
	}
	filter := c.Float("mask_filter_value", -10000)
	scale := c.Float("scale", 0)
	if scale == 0 {
		scale = float32(1 / math.Sqrt(float64(max(q.Size, 1))))
	}
	a := &products.Attention{Scale: scale, Mask: func(scores []float32, batch, head, query int) {
		add(scores, batch, head, query)
		for j := range scores {
			if hidden(batch, j) {
				scores[j] += filter
			}
			if c.Is("unidirectional") && j > query+k.Length-q.Length {
				scores[j] = minus
			}
		}
	}}
	y, err := a.Compute(c, q, k, h[2])
	if err != nil {
		return nil, err
	}
	return tensors(c, c.In[0].DType, y, k, h[2])
}
