package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
)

// Algorithm names a way to find codes and scales.
type Algorithm string

const (
	RTN      Algorithm = "rtn"     // round to the nearest code, ties to even
	RTNofORT Algorithm = "rtn-ort" // rtn with the scales of ONNX Runtime's quantizer
	KQuant   Algorithm = "k_quant" // ONNX Runtime's search for scale and zero point
	HQQ      Algorithm = "hqq"     // ONNX Runtime's half-quadratic search for the zero point
	MSE      Algorithm = "mse"     // search for the least squared error, then corrected for shrinkage of the outputs
	AWQ      Algorithm = "awq"     // scales channels by their importance, from the inputs of layers
	GPTQ     Algorithm = "gptq"    // compensates errors of a column in others, from the inputs of layers
	Best     Algorithm = "best"    // second-order search, from the inputs of layers or from the weights alone
)

// AlgorithmTraits describes an algorithm. The code of algorithms is in internal/quantize and
// internal/layerfit.
type AlgorithmTraits struct {
	Algorithm Algorithm
	Help      string // for --algorithm; "": the help of the next algorithm covers this one

	OtherFormats bool // other formats than integers are supported
	TakesData    bool // calibration data are used if given
	NeedsData    bool // calibration data are required

	NeedsZeroPoint bool // only asymmetric codes are supported
	NegativeScales bool // without zero points, scales may be negative
	PlainScales    bool // scales have the type of the weight; ScaleType cannot change that
	FloatZeros     bool // zero points may be floats, if the operator takes floats
}

// algorithms is the table of algorithms.
var algorithms = []AlgorithmTraits{
	{Algorithm: RTN, Help: "round to nearest"},
	{Algorithm: RTNofORT, NegativeScales: true},
	{Algorithm: KQuant, NeedsZeroPoint: true},
	{Algorithm: HQQ, Help: "as ONNX Runtime's quantizers do", NeedsZeroPoint: true, PlainScales: true, FloatZeros: true},
	{Algorithm: MSE, Help: "least squared error", OtherFormats: true},
	{Algorithm: AWQ, Help: "channels with factors, by --calib", TakesData: true, NeedsData: true},
	{Algorithm: GPTQ, Help: "errors make up for each other, by --calib", OtherFormats: true, TakesData: true, NeedsData: true},
	{Algorithm: Best, Help: "least error of outputs, by --calib or estimated", OtherFormats: true, TakesData: true},
}

// Algorithms lists every known algorithm.
func Algorithms() []Algorithm { return algorithmsWith(func(AlgorithmTraits) bool { return true }) }

// CalibratedAlgorithms lists the algorithms that use calibration data.
func CalibratedAlgorithms() []Algorithm {
	return algorithmsWith(func(t AlgorithmTraits) bool { return t.TakesData })
}

func algorithmsWith(wanted func(AlgorithmTraits) bool) (list []Algorithm) {
	for _, t := range algorithms {
		if wanted(t) {
			list = append(list, t.Algorithm)
		}
	}
	return list
}

// AlgorithmHelp describes all algorithms in a sentence, algorithms for integers first.
func AlgorithmHelp() string {
	var names, integers, all []string
	for _, t := range algorithms {
		if names = append(names, string(t.Algorithm)); t.Help == "" {
			continue
		}
		text := english.WordSeries(names, "and") + ", " + t.Help
		if names = nil; t.OtherFormats {
			all = append(all, text)
		} else {
			integers = append(integers, text)
		}
	}
	return strings.Join(integers, "; ") + "; in all formats: " + strings.Join(all, "; ")
}

// Traits returns the traits of an algorithm; the zero AlgorithmTraits for unknown ones.
func (a Algorithm) Traits() AlgorithmTraits {
	for _, t := range algorithms {
		if t.Algorithm == a {
			return t
		}
	}
	return AlgorithmTraits{}
}

// Calibrated reports whether the algorithm can use calibration data.
func (a Algorithm) Calibrated() bool { return a.Traits().TakesData }

// NeedsData reports whether the algorithm requires calibration data.
func (a Algorithm) NeedsData() bool { return a.Traits().NeedsData }

// Serves reports whether the algorithm supports a format.
func (a Algorithm) Serves(f Format) bool {
	return f.Traits().Family == Integer || a.Traits().OtherFormats
}

var (
	// ErrNoData: the algorithm needs the inputs of layers, but there are no calibration data.
	ErrNoData = errors.New("needs calibration data")
	// ErrZeroPoint: the algorithm supports only asymmetric codes.
	ErrZeroPoint = errors.New("needs zero points")
)

// ParseAlgorithm returns the algorithm called name.
func ParseAlgorithm(name string) (Algorithm, error) {
	if a := Algorithm(name); slices.Contains(Algorithms(), a) {
		return a, nil
	}
	return "", fmt.Errorf("algorithm %q is not known (known: %s)", name, strings.Join(names(Algorithms()), ", "))
}

// Check returns an error if the algorithm does not support a weight with these settings.
func (a Algorithm) Check(format Format, zeroPoint bool, style Style, r Range) error {
	switch {
	case a == "" || a == RTN:
		return nil
	case !a.Serves(format):
		return fmt.Errorf("algorithm %s is for integer formats, not for %s", a, format)
	case a.Traits().NeedsZeroPoint && !zeroPoint:
		return fmt.Errorf("algorithm %s %w", a, ErrZeroPoint)
	case style == QDQ:
		return fmt.Errorf("style qdq: QuantizeLinear rounds to nearest, which is algorithm rtn, not %s", a)
	case r.Kind > MinMax:
		return fmt.Errorf("range %s is for algorithm rtn: %s finds its own", r, a)
	}
	return nil
}
