package kvcache

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/spec"
)

// rotation says which channels of a head the positions of tokens rotate, in pairs.
type rotation struct {
	channels    int64 // the first of a head; 0: none; -1: all
	interleaved bool  // pairs are neighbors, not halves apart
}

// rotationOf reads the rotation of a GroupQueryAttention.
func (s *scene) rotationOf(n *onnxpb.NodeProto) rotation {
	if graph.IntAttribute(n, "do_rotary") == 0 {
		return rotation{}
	}
	r := rotation{-1, graph.IntAttribute(n, "rotary_interleaved") == 1}
	if graph.HasInput(n, 7) {
		for _, t := range s.g.Initializer {
			if dims := t.GetDims(); t.GetName() == n.Input[7] && len(dims) == 2 {
				r.channels = 2 * dims[1]
			}
		}
	}
	return r
}

// partner returns the channel that is rotated with channel i of a head, or i.
func (r rotation) partner(i, size int64) int64 {
	n := r.channels
	if n < 0 || n > size {
		n = size
	}
	n -= n % 2
	switch half := n / 2; {
	case i >= n:
		return i
	case r.interleaved:
		return i ^ 1
	case i < half:
		return i + half
	default:
		return i - half
	}
}

// Observer finds the scales of a cache from its values.
type Observer struct {
	cache       Cache
	heads, size int64     // 0: one scale only
	largest     []float32 // absolute values, by head and channel
	rotated     []float32 // the same, for any rotation of the observed values
	bad         bool      // some values are not finite
	seen        bool
}

// NewObserver returns an observer of a cache.
func NewObserver(c Cache) *Observer { return &Observer{cache: c} }

// Observe observes values with a shape.
func (o *Observer) Observe(dims []int64, x []float32) error {
	if len(x) == 0 { // also a constant in place of a cache that a branch leaves alone
		return nil
	}
	heads, size := int64(1), int64(1)
	if o.cache.Heads > 0 && len(dims) == 4 {
		heads, size = dims[1], dims[3]
	}
	if o.largest == nil {
		o.heads, o.size = heads, size
		o.largest, o.rotated = make([]float32, heads*size), make([]float32, heads*size)
	}
	if heads != o.heads || size != o.size {
		return fmt.Errorf("the shape is %d, was one with %d heads of %d", dims, o.heads, o.size)
	}
	o.seen = true
	tokens := int64(1)
	if len(dims) == 4 && o.cache.Heads > 0 {
		tokens = dims[2]
	}
	for row := range int64(len(x)) / size {
		at := row / tokens % heads * size
		token := x[row*size:][:size]
		for i, v := range token {
			v = float32(math.Abs(float64(v)))
			if !(v <= math.MaxFloat32) {
				o.bad = true
			}
			o.largest[at+int64(i)] = max(o.largest[at+int64(i)], v)
			if o.cache.rotation.channels != 0 {
				if p := o.cache.rotation.partner(int64(i), size); p != int64(i) {
					v = float32(math.Hypot(float64(v), float64(token[p])))
				}
			}
			o.rotated[at+int64(i)] = max(o.rotated[at+int64(i)], v)
		}
	}
	return nil
}

// mostCode is the largest code.
const mostCode = 127

// Scales returns the scales: one, one per head, or one per channel of each head. GroupQueryAttention has no scales per
// head: its channels get the scale of their head. Channels that positions rotate get the scale that holds at any position.
func (o *Observer) Scales(by spec.KVCache) ([]float32, error) {
	switch {
	case o.bad:
		return nil, fmt.Errorf("%w: output %s has values that are not finite", ErrCache, msg.Quote(o.cache.Output))
	case !o.seen:
		return nil, fmt.Errorf("%w: output %s has no values with these data", ErrCache, msg.Quote(o.cache.Output))
	case by != spec.KVInt8 && o.cache.Heads == 0:
		return nil, fmt.Errorf("%w: input %s: its heads are not known to be on axis 1 of 4, so --kv-cache %s cannot be applied; %s can", ErrCache, msg.Quote(o.cache.Input), by, spec.KVInt8)
	}
	from, each := o.largest, o.heads*o.size
	switch by {
	case spec.KVInt8PerHead:
		each = o.size
	case spec.KVInt8PerChannel:
		from, each = o.rotated, 1
	}
	scales := make([]float32, int64(len(from))/each)
	for i := range scales {
		most := float32(0)
		for _, v := range from[int64(i)*each:][:each] {
			most = max(most, v)
		}
		if scales[i] = most / mostCode; scales[i] == 0 {
			scales[i] = 1 // codes of 0 only
		}
	}
	if by == spec.KVInt8PerHead && o.cache.Operator == groupQuery {
		scales = repeated(scales, o.size)
	}
	return scales, nil
}

// repeated repeats each scale n times.
func repeated(scales []float32, n int64) (all []float32) {
	for _, s := range scales {
		all = append(all, slices.Repeat([]float32{s}, int(n))...)
	}
	return all
}
