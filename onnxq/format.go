package onnxq

import (
	"fmt"
	"slices"
	"strings"
)

// KnownAlgorithms are the ways to find codes and scales: rtn rounds to the
// nearest, ties to even.
var KnownAlgorithms = []string{"rtn"}

// Format names the numbers that a weight's values become.
type Format string

const (
	Float Format = "float" // the weight stays as it is
	Int2  Format = "int2"
	Uint2 Format = "uint2"
	Int4  Format = "int4"
	Uint4 Format = "uint4"
	Int8  Format = "int8"
	Uint8 Format = "uint8"
)

type formatTraits struct {
	format Format
	bits   int // of one code; 0 where values are not coded
	signed bool
}

// formats is the one list of what this version knows.
var formats = []formatTraits{
	{Float, 0, true},
	{Int2, 2, true},
	{Uint2, 2, false},
	{Int4, 4, true},
	{Uint4, 4, false},
	{Int8, 8, true},
	{Uint8, 8, false},
}

// Formats lists every known format, Float first.
func Formats() []Format {
	names := make([]Format, len(formats))
	for i, f := range formats {
		names[i] = f.format
	}
	return names
}

// ParseFormat returns the format called name.
func ParseFormat(name string) (Format, error) {
	if f := Format(name); slices.Contains(Formats(), f) {
		return f, nil
	}
	return "", fmt.Errorf("format %q is not known (known: %s)", name, joinFormats())
}

// Bits is the size of one code, 0 for Float and for unknown formats.
func (f Format) Bits() int { return f.traits().bits }

// Signed reports whether codes can be negative. The unsigned formats need a
// zero point to stand for negative values.
func (f Format) Signed() bool { return f.traits().signed }

func (f Format) traits() formatTraits {
	for _, t := range formats {
		if t.format == f {
			return t
		}
	}
	return formatTraits{}
}

func joinFormats() string {
	var names []string
	for _, f := range formats {
		names = append(names, string(f.format))
	}
	return strings.Join(names, ", ")
}
