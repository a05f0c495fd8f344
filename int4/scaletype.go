package int4

import (
	"fmt"
	"math"

	"onnxquant/formats/dtype"
)

// leastHalf and greatestHalf bound float16 scales of float32 weights: none becomes 0 or infinite.
const (
	leastHalf    = 0x1p-24
	greatestHalf = 65504
)

// checkScale returns an error if scales cannot be stored as the fields say.
func (c Codec) checkScale() error {
	switch c.Scale {
	case 0, dtype.Float32:
		return nil
	case dtype.Float16, dtype.Int8, dtype.Uint8:
		if c.Type == 0 || c.Type == dtype.Float32 {
			return nil
		}
		return fmt.Errorf("scales of type %s: weights of type %s have scales of their own type", c.Scale, c.Type)
	}
	return fmt.Errorf("scales of type %s: want float32, float16, int8 or uint8", c.Scale)
}

// RoundScale returns a scale as it will be stored.
func (c Codec) RoundScale(s float32) float32 {
	switch {
	case c.Stepped() && c.Step > 0:
		return float32(c.steps(s)) * c.Step
	case c.Scale == dtype.Float16:
		m := max(dtype.RoundFloat16(min(abs(s), greatestHalf)), leastHalf)
		return float32(math.Copysign(float64(m), float64(s)))
	}
	return c.Type.Round(s)
}

// Stepped reports whether scales are stored as multiples of Step.
func (c Codec) Stepped() bool { return c.Scale == dtype.Int8 || c.Scale == dtype.Uint8 }

// smallScale reports whether scales are stored in another type than the weights.
func (c Codec) smallScale() bool { return c.Scale == dtype.Float16 || c.Stepped() }

// mostSteps is the largest scale in steps.
func (c Codec) mostSteps() float32 {
	if c.Scale == dtype.Int8 {
		return math.MaxInt8
	}
	return math.MaxUint8
}

// steps is the number of steps nearest to a scale, not 0. A uint8 holds no negative one.
func (c Codec) steps(s float32) int32 {
	n := min(max(float32(math.RoundToEven(float64(abs(s)/c.Step))), 1), c.mostSteps())
	if s < 0 && c.Scale == dtype.Int8 {
		n = -n
	}
	return int32(n)
}

// ScaleSteps sets steps to scales that RoundScale has rounded, as multiples of Step.
func (c Codec) ScaleSteps(steps []byte, scale []float32) {
	for i, s := range scale {
		steps[i] = byte(c.steps(s))
	}
}

// WithStep returns the codec whose step is such that the largest scale of a tensor takes all bits.
func (c Codec) WithStep(largest float32) Codec {
	c.Step = largest / c.mostSteps()
	if c.mostSteps()*c.Step > largest { // codes times the scale must stay finite
		c.Step = math.Float32frombits(math.Float32bits(c.Step) - 1)
	}
	c.Step = max(c.Step, 0x1p-126)
	return c
}
