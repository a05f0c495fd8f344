// Package specvalue has the values of flags for what a conversion is given: formats, bits, ranges of blocks, accuracy levels, shares, candidates,
// presets, and paths of calibration data.
//
// A value gets a pointer to what it sets. Its errors name what is near to what was given.
package specvalue

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"onnxquant/internal/cli"
	"onnxquant/internal/nearest"
	"onnxquant/internal/othertools"
	"onnxquant/spec"
)

// BlockRange is the value of a flag that takes the range method of a block.
type BlockRange struct{ To *spec.Range }

func (r BlockRange) Set(s string) error {
	s = strings.ToLower(s)
	if s == "percentile" {
		return errors.New("percentile needs the share of values to cover, such as percentile:99.9")
	}
	parsed, err := spec.ParseRange(s)
	if err != nil || s == "" {
		text := "want minmax, mse or percentile:P, P from 50 to 100"
		if near, ok := nearest.Name(s, r.Values()); ok {
			text += "; did you mean " + near + "?"
		}
		return errors.New(text)
	}
	*r.To = parsed
	return nil
}

func (r BlockRange) String() string   { return "" }
func (r BlockRange) Type() string     { return "NAME" }
func (r BlockRange) Values() []string { return []string{"minmax", "mse", "percentile:99.9"} }

// FormatValue is the value of a flag that takes a format.
type FormatValue struct{ cli.Choice[spec.Format] }

// NewFormat makes a flag that takes one of the allowed formats.
func NewFormat(value *spec.Format, allowed []spec.Format) FormatValue {
	return FormatValue{cli.Choice[spec.Format]{Value: value, Allowed: allowed, Kind: "FORMAT"}}
}

// CodedFormats lists all formats except float.
func CodedFormats() []spec.Format {
	var names []spec.Format
	for _, f := range spec.Formats() {
		if f != spec.Float {
			names = append(names, f)
		}
	}
	return names
}

func (f FormatValue) Set(s string) error {
	for _, known := range f.Allowed {
		if strings.EqualFold(string(known), s) {
			*f.Value = known
			return nil
		}
	}
	if text, ok := othertools.Formats[cli.PlainName(s)]; ok {
		return errors.New("it is no format; " + text)
	}
	switch near := spec.Similar(s); {
	case s == "":
		return errors.New("want a format")
	case len(near) == 0:
		return fmt.Errorf("there is no %s; want %s", s, cli.OneOf(f.Allowed))
	default:
		return fmt.Errorf("there is no %s; did you mean %s?", s, cli.OneOf(near))
	}
}

// AccuracyLevel is the value of a flag for the accuracy_level of MatMulNBits.
type AccuracyLevel struct {
	To   *spec.AccuracyLevel
	Auto *bool // of a flag that takes auto, too; or nil
}

func (a AccuracyLevel) Set(s string) error {
	if a.Auto != nil {
		if *a.Auto = strings.EqualFold(s, "auto"); *a.Auto {
			*a.To = spec.AccuracyDefault
			return nil
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 4 {
		if a.Auto != nil {
			return errors.New("want 0 to 4, or auto")
		}
		return errors.New("want 0 to 4")
	}
	*a.To = spec.AccuracyLevel(n)
	if n == 0 {
		*a.To = spec.AccuracyUnset
	}
	return nil
}

func (a AccuracyLevel) String() string { return "" }
func (a AccuracyLevel) Type() string   { return "N" }

// AccuracyLevelHelp describes the flag --accuracy-level.
const AccuracyLevelHelp = "accuracy_level of MatMulNBits: 4 rounds activations to 8 bits,\n0.5 to 1 % error in the outputs; 1 does not, and is much slower\nin ONNX Runtime; 0: no attribute (default 4)"
