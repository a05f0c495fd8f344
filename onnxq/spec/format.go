package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/formats/mx"
	"onnxquant/formats/qlora"
	"onnxquant/nvfp4"
)

// Format names the numbers that a weight's values become. Besides those below there
// are the encodings of package ggml that have a form, called as there but in small
// letters, such as q4_k; [Formats] lists them all.
type Format string

const (
	Float     Format = "float" // the weight stays as it is
	Int2      Format = "int2"
	Uint2     Format = "uint2"
	Int4      Format = "int4"
	Uint4     Format = "uint4"
	Int8      Format = "int8"
	Uint8     Format = "uint8"
	FP8E4M3   Format = "fp8-e4m3"
	FP8E5M2   Format = "fp8-e5m2"
	NVFP4     Format = "nvfp4"
	MXFP4     Format = "mxfp4"
	MXFP8     Format = "mxfp8" // of E4M3 elements
	MXFP8E5M2 Format = "mxfp8-e5m2"
	NF4       Format = "nf4"
	FP4       Format = "fp4" // that of bitsandbytes
)

// family is a group of formats that share their way of scaling.
type Family int

const (
	unscaled     Family = iota
	Integer             // package int4
	Float8              // package fp8
	TwoLevel            // package nvfp4: scales of blocks are themselves scaled
	Microscaling        // package mx: scales are powers of two
	Lookup              // package qlora: codes are positions in a table
	Blockwise           // package ggml: blocks are made as a whole
)

type Traits struct {
	Format Format
	Family Family
	Codes  dtype.DType // of the tensor of codes
	Suffix string      // of its name; the reference's is _i4
	Block  int         // default, where it is not that of the options
	Only   bool        // no other block size is a standard's
}

// Table lists what this version knows, but for the formats of package ggml.
var Table = []Traits{
	{Format: Float},
	{Int2, Integer, dtype.Int2, "_i2", 0, false},
	{Uint2, Integer, dtype.Uint2, "_u2", 0, false},
	{Int4, Integer, dtype.Int4, "_i4", 0, false},
	{Uint4, Integer, dtype.Uint4, "_u4", 0, false},
	{Int8, Integer, dtype.Int8, "_i8", 0, false},
	{Uint8, Integer, dtype.Uint8, "_u8", 0, false},
	{FP8E4M3, Float8, dtype.Float8E4M3FN, "_f8", 0, false},
	{FP8E5M2, Float8, dtype.Float8E5M2, "_f8", 0, false},
	{NVFP4, TwoLevel, dtype.Float4E2M1, "_f4", nvfp4.BlockSize, false},
	{MXFP4, Microscaling, dtype.Float4E2M1, "_f4", mx.BlockSize, true},
	{MXFP8, Microscaling, dtype.Float8E4M3FN, "_f8", mx.BlockSize, true},
	{MXFP8E5M2, Microscaling, dtype.Float8E5M2, "_f8", mx.BlockSize, true},
	{NF4, Lookup, dtype.Uint4, "_nf4", qlora.BlockSize, false},
	{FP4, Lookup, dtype.Uint4, "_fp4", qlora.BlockSize, false},
}

// Formats lists every known format, Float first.
func Formats() []Format {
	var names []Format
	for _, f := range slices.Concat(Table, BlockwiseFormats()) {
		names = append(names, f.Format)
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
func (f Format) Bits() int { return int(f.Traits().Codes.Bits()) }

// Signed reports whether codes are two's complement. The unsigned integers need
// a zero point to stand for negative values.
func (f Format) Signed() bool { return f.Traits().Codes.Signed() }

// Scaled tells whether the format is that of integers around 0, or of a zero point, each
// block of them with a scale that is stored.
func (f Format) Scaled() bool {
	if e := f.Encoding(); e != nil {
		return e.Form.Signed && !e.Form.Nested && !e.Form.Mins
	}
	return f.Traits().Family == Integer
}

func (f Format) Traits() Traits {
	for _, t := range Table {
		if t.Format == f {
			return t
		}
	}
	if e := f.Encoding(); e != nil {
		return blockwiseTraits(e)
	}
	return Traits{}
}

func joinFormats() string {
	var names []string
	for _, f := range Formats() {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}

// Block sizes of formats that have none of their own.
const (
	defaultBlock  = 128
	defaultBlock8 = 32 // of 8 bits, which are chosen for accuracy
)

// Resolve finds the format that bits, a format's name, or both ask for,
// and its block size.
func Resolve(bits int, format Format, block int, zeroPoint bool) (Format, int, error) {
	if format == "" {
		if bits == 0 {
			bits = 4
		}
		prefix := "int"
		if zeroPoint {
			prefix = "uint"
		}
		format = Format(fmt.Sprintf("%s%d", prefix, bits))
		if format.Bits() == 0 {
			return "", 0, fmt.Errorf("%d bits: want 2, 4 or 8", bits)
		}
		bits = 0
	}
	if _, err := ParseFormat(string(format)); err != nil {
		return "", 0, err
	}
	t := format.Traits()
	if block == 0 {
		block = cmp.Or(t.Block, defaultBlock)
		if t.Family == Integer && format.Bits() == 8 {
			block = defaultBlock8
		}
	}
	switch {
	case bits != 0 && format.Bits() != bits:
		return "", 0, fmt.Errorf("format %s has %d bits, not %d", format, format.Bits(), bits)
	case zeroPoint && t.Family != Integer:
		return "", 0, fmt.Errorf("format %s has no zero points", format)
	case t.Only && block != t.Block:
		return "", 0, fmt.Errorf("format %s has blocks of %d, not %d", format, t.Block, block)
	}
	return format, block, nil
}

// BlockwiseFormats lists the formats of registered encodings.
func BlockwiseFormats() []Traits {
	var list []Traits
	for _, e := range ggml.All() {
		if e.Form != nil {
			list = append(list, blockwiseTraits(e))
		}
	}
	return list
}

func blockwiseTraits(e *ggml.Encoding) Traits {
	name := strings.ToLower(e.Name)
	return Traits{Format(name), Blockwise, codesOf(e.Form), "_" + name, e.Elements, true}
}

// codesOf is the smallest type that has a form's codes.
func codesOf(f *ggml.Form) dtype.DType {
	types := map[bool][3]dtype.DType{
		false: {dtype.Uint2, dtype.Uint4, dtype.Uint8},
		true:  {dtype.Int2, dtype.Int4, dtype.Int8},
	}[f.Signed]
	switch {
	case f.Values != nil:
		return dtype.Uint4
	case f.Bits <= 2:
		return types[0]
	case f.Bits <= 4:
		return types[1]
	}
	return types[2]
}

// Encoding returns that of a blockwise format, nil for others.
func (f Format) Encoding() *ggml.Encoding {
	if e, ok := ggml.Lookup(string(f)); ok && e.Form != nil {
		return e
	}
	return nil
}
