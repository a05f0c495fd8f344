package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"onnxquant/internal/othertools"
	"onnxquant/internal/preset"
	"onnxquant/spec"
)

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

func (p presetName) Set(s string) error { *p.value = s; return preset.Exists(s) }
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
