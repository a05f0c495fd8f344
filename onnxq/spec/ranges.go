package spec

import (
	"fmt"
	"onnxquant/calib"
)

// ParseRange reads how the ranges of blocks are found: minmax or nothing, mse or
// percentile:P.
func ParseRange(text string) (calib.Method, error) {
	if text == "" {
		text = "minmax"
	}
	m, err := calib.ParseMethod(text)
	if err != nil {
		return m, err
	}
	switch m.Name {
	case "minmax", "percentile", "mse":
		return m, nil
	}
	return m, fmt.Errorf("range %q is for activations: want minmax, percentile:P or mse", text)
}
