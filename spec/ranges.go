package spec

import (
	"fmt"
	"strconv"

	"onnxquant/calib"
)

// Range is the clipping range of the blocks of integer formats.
type Range struct {
	Kind    RangeKind
	Percent float64 // for Percentile, 0 to 100
}

// RangeKind is a way to choose the clipping range of a block.
type RangeKind int

const (
	DefaultRange RangeKind = iota // see Range.Of
	MinMax                        // all values of the block; nothing is clipped
	Percentile                    // clips the values beyond a percentile
	RangeMSE                      // the range with the least mean square error
)

// Of returns the range for a format: r, unless r is the default. The default is RangeMSE for
// symmetric codes of 2 bits, and MinMax for all others. Symmetric 2-bit codes reach only half the
// largest magnitude on one side: with MinMax, outputs are worse than with weights of 0.
func (r Range) Of(f Format, zeroPoint bool) Range {
	switch {
	case r.Kind != DefaultRange:
		return r
	case f.Traits().Family == Integer && f.Bits() == 2 && !zeroPoint:
		return Range{Kind: RangeMSE}
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
		return Range{Kind: RangeMSE}, nil
	}
	return Range{}, fmt.Errorf("range %q is for activations: want minmax, percentile:P or mse", text)
}

// String writes the range in the syntax of ParseRange.
func (r Range) String() string {
	switch r.Kind {
	case DefaultRange:
		return ""
	case Percentile:
		return "percentile:" + strconv.FormatFloat(r.Percent, 'g', -1, 64)
	case RangeMSE:
		return "mse"
	}
	return "minmax"
}
