package samples

import (
	"errors"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
)

// ErrOutputs says that a model makes no finite outputs of a sample.
var ErrOutputs = errors.New("the outputs of the float model are NaN or infinite")

// NotFinite describes a sample of which a model makes no finite outputs.
func (s *Samples) NotFinite(number int, inputs []*execute.Tensor) error {
	for _, in := range inputs {
		if notFinite(in).below {
			return fmt.Errorf("%s: %w; its input %q has -infinity, which is for masks: leave the sample out", s.Name(number), ErrOutputs, in.Name)
		}
	}
	return fmt.Errorf("%s: %w", s.Name(number), ErrOutputs)
}

// infinities says which elements of a tensor are not finite. Minus infinity is no mistake in a mask.
type infinities struct{ nan, above, below bool }

// notFinite looks for elements that are not finite. A missing tensor has none.
func notFinite(t *execute.Tensor) (bad infinities) {
	if t == nil || !t.IsFloat() {
		return bad
	}
	if t.DType == dtype.Float64 { // float32 has not all of its numbers
		look(t.Float64s(), &bad)
		return bad
	}
	var buf [1 << 12]float32
	for data := range slices.Chunk(t.Data, len(buf)*t.Size()) {
		x := buf[:len(data)/t.Size()]
		t.DType.Decode(x, data)
		look(x, &bad)
	}
	return bad
}

func look[T float32 | float64](x []T, bad *infinities) {
	for _, v := range x {
		switch {
		case v-v == 0:
		case v != v:
			bad.nan = true
		case v > 0:
			bad.above = true
		default:
			bad.below = true
		}
	}
}
