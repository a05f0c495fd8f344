package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Algorithm is a way to find the codes and scales of integer formats. The other formats have
// rules of their own, LeastAngle, GPTQ and Best.
type Algorithm string

const (
	RTN        Algorithm = "rtn"     // round to the nearest code, ties to even
	RTNofORT   Algorithm = "rtn-ort" // that with the scales of ONNX Runtime's quantizer
	KQuant     Algorithm = "k_quant" // ONNX Runtime's search for scale and zero point
	HQQ        Algorithm = "hqq"     // ONNX Runtime's half-quadratic search for the zero point
	Best       Algorithm = "best"    // second order, from the inputs of layers or from the weights alone
	GPTQ       Algorithm = "gptq"    // errors make up for each other, by the inputs that layers get
	AWQ        Algorithm = "awq"     // channels that count more get larger weights, by the inputs that layers get
	LeastAngle Algorithm = "mse"     // a search for the least squared error, with its gain corrected
)

// Algorithms lists every known algorithm.
func Algorithms() []Algorithm {
	return []Algorithm{RTN, RTNofORT, KQuant, HQQ, LeastAngle, AWQ, GPTQ, Best}
}

// Calibrated reports whether the algorithm can make use of calibration data.
func (a Algorithm) Calibrated() bool { return a == AWQ || a == GPTQ || a == Best }

// NeedsData reports whether there is no algorithm without them.
func (a Algorithm) NeedsData() bool { return a == AWQ || a == GPTQ }

var (
	// ErrNoData: the algorithm looks at what layers get as inputs, and there are no data.
	ErrNoData = errors.New("needs calibration data")
	// ErrZeroPoint: the algorithm is for asymmetric codes.
	ErrZeroPoint = errors.New("needs zero points")
)

// ParseAlgorithm returns the algorithm called name.
func ParseAlgorithm(name string) (Algorithm, error) {
	if a := Algorithm(name); slices.Contains(Algorithms(), a) {
		return a, nil
	}
	var known []string
	for _, a := range Algorithms() {
		known = append(known, string(a))
	}
	return "", fmt.Errorf("algorithm %q is not known (known: %s)", name, strings.Join(known, ", "))
}

// Check returns an error if a weight with these settings cannot have the algorithm.
func (a Algorithm) Check(format Format, zeroPoint bool, style Style, r Range, t Target) error {
	switch {
	case a == "" || a == RTN:
		return nil
	case format.Traits().Family != Integer && a != LeastAngle && a != GPTQ && a != Best:
		return fmt.Errorf("algorithm %s is for integer formats, not for %s", a, format)
	case (a == KQuant || a == HQQ) && !zeroPoint:
		return fmt.Errorf("algorithm %s %w", a, ErrZeroPoint)
	case a == RTNofORT && !zeroPoint && t == TensorRT:
		return fmt.Errorf("algorithm %s has negative scales, which TensorRT does not take", a)
	case style == QDQ:
		return fmt.Errorf("style qdq: QuantizeLinear rounds to nearest, which is algorithm rtn, not %s", a)
	case r.Kind > MinMax:
		return fmt.Errorf("range %s is for algorithm rtn: %s finds its own", r, a)
	}
	return nil
}
