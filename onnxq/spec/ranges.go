package spec

import (
	"fmt"
	"strconv"

	"onnxquant/calib"
)

// Range says which range of values the codes of a block cover, in integer formats.
type Range struct {
	Kind    RangeKind
	Percent float64 // for Percentile, 0 to 100
}

// RangeKind is a way to find the range of a block.
type RangeKind int

const (
	DefaultRange RangeKind = iota // as Of says
	MinMax                        // all values of the block
	Percentile                    // the given percentage of them; the others are clipped
	MSE                           // the range with the least mean square error
)

// Of returns the range for a format: r, unless that is the default. Symmetric codes of 2 bits
// get MSE: with MinMax they are 0 up to half the largest magnitude of a block, which makes
// outputs worse than weights of 0 would. All others get MinMax.
func (r Range) Of(f Format, zeroPoint bool) Range {
	switch {
	case r.Kind != DefaultRange:
		return r
	case f.Traits().Family == Integer && f.Bits() == 2 && !zeroPoint:
		return Range{Kind: MSE}
	}
	return Range{Kind: MinMax}
}

// ParseRange parses minmax, mse or percentile:P; "" is the default.
func ParseRange(text string) (Range, error) {
	if text == "" {
		return Range{}, nil
	}
	m, err := calib.ParseMethod(text)
	if err != nil {
		return Range{}, err
	}
	switch m.Name {
	case "minmax":
		return Range{Kind: MinMax}, nil
	case "percentile":
		return Range{Percentile, m.Number}, nil
	case "mse":
		return Range{Kind: MSE}, nil
	}
	return Range{}, fmt.Errorf("range %q is for activations: want minmax, percentile:P or mse", text)
}

// String writes the range as ParseRange reads it.
func (r Range) String() string {
	switch r.Kind {
	case DefaultRange:
		return ""
	case Percentile:
		return "percentile:" + strconv.FormatFloat(r.Percent, 'g', -1, 64)
	case MSE:
		return "mse"
	}
	return "minmax"
}
