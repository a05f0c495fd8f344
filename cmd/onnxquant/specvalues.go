package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"onnxquant/internal/cli"
	"onnxquant/internal/nearest"
	"onnxquant/internal/othertools"
	"onnxquant/internal/preset"
	"onnxquant/spec"
)

// blockRange is the value of a flag that takes the range method of a block.
type blockRange struct{ value *spec.Range }

func (r blockRange) Set(s string) error {
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
	*r.value = parsed
	return nil
}

func (r blockRange) String() string   { return "" }
func (r blockRange) Type() string     { return "NAME" }
func (r blockRange) Values() []string { return []string{"minmax", "mse", "percentile:99.9"} }

// formatValue is the value of a flag that takes a format.
type formatValue struct{ cli.Choice[spec.Format] }

func newFormat(value *spec.Format, allowed []spec.Format) formatValue {
	return formatValue{cli.Choice[spec.Format]{Value: value, Allowed: allowed, Kind: "FORMAT"}}
}

func (f formatValue) Set(s string) error {
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
		return fmt.Errorf("there is no %s", s)
	default:
		return fmt.Errorf("there is no %s; did you mean %s?", s, cli.OneOf(near))
	}
}

// bitCount is the value of --bits.
type bitCount struct{ value *int }

func (b bitCount) Set(s string) error {
	n, err := strconv.Atoi(s)
	switch {
	case err != nil && slices.Contains(codedFormats(), spec.Format(strings.ToLower(s))):
		return errors.New("want 2, 4 or 8; for this format, write --format " + strings.ToLower(s))
	case err != nil:
		n = 0
	case n == 16 || n == 32:
		return errors.New("want 2, 4 or 8; " + othertools.Flags[fmt.Sprint("fp", n)])
	}
	if err := spec.CheckBits(n); err != nil {
		return err
	}
	*b.value = n
	return nil
}

func (b bitCount) String() string   { return "" }
func (b bitCount) Type() string     { return "N" }
func (b bitCount) Values() []string { return []string{"2", "4", "8"} }

// dataPaths is the value of a flag that takes calibration data. If the flag is repeated, they add
// up.
type dataPaths struct{ value *[]string }

func (d dataPaths) Set(s string) error {
	if s == "" {
		return errors.New("want a file or folder of data, or self")
	}
	*d.value = append(*d.value, s)
	return nil
}

func (d dataPaths) String() string   { return "" }
func (d dataPaths) Type() string     { return "DATA" }
func (d dataPaths) Values() []string { return []string{"self"} }
func (d dataPaths) OrFile()          {}
func (d dataPaths) AddsUp()          {}

// presetName is the value of a flag that takes a preset, by its name or in a file.
type presetName struct{ value *string }

func (p presetName) Set(s string) error { *p.value = s; return nil }
func (p presetName) String() string     { return "" }
func (p presetName) Type() string       { return "NAME" }
func (p presetName) Values() []string   { return preset.Names() }
func (p presetName) OrFile()            {}

// About returns the summary of a preset.
func (p presetName) About(name string) string {
	known, err := preset.Load(name)
	if err != nil {
		return ""
	}
	return known.About
}

// accuracyLevel is the value of a flag for the accuracy_level of MatMulNBits.
type accuracyLevel struct{ value *spec.AccuracyLevel }

func (a accuracyLevel) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 4 {
		return errors.New("want 0 to 4")
	}
	*a.value = spec.AccuracyLevel(n)
	if n == 0 {
		*a.value = spec.AccuracyUnset
	}
	return nil
}

func (a accuracyLevel) String() string { return "" }
func (a accuracyLevel) Type() string   { return "N" }

// accuracyLevelHelp describes the flag --accuracy-level.
const accuracyLevelHelp = "accuracy_level of MatMulNBits: 4 rounds activations to 8 bits,\n0.5 to 1 % error in the outputs; 1 does not, and is much slower\nin ONNX Runtime; 0: no attribute (default 4)"
