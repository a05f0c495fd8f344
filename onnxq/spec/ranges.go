package spec

import (
	"fmt"
	"strconv"

	"onnxquant/calib"
)

// Range says which range of values the codes of a block cover, in integer formats. The zero
// Range is MinMax.
type Range struct {
	Kind    RangeKind
	Percent float64 // for Percentile, 0 to 100
}

// RangeKind is a way to find the range of a block.
type RangeKind int

const (
	MinMax     RangeKind = iota // all values of the block
	Percentile                  // the given percentage of them; the others are clipped
	MSE                         // the range with the least mean square error
)

// ParseRange parses minmax, mse or percentile:P; "" is minmax.
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
		return Range{}, nil
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
	case Percentile:
		return "percentile:" + strconv.FormatFloat(r.Percent, 'g', -1, 64)
	case MSE:
		return "mse"
	}
	return "minmax"
}
