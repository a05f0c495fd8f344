package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/formats/mx"
	"onnxquant/formats/qlora"
	"onnxquant/nvfp4"
)

// Format names how the values of a weight are stored. [Formats] lists all of them. Besides the
// constants below these are the encodings of package ggml that have a Form, with names in lower
// case such as q4_k.
type Format string

const (
	Float     Format = "float"      // not quantized
	Int2      Format = "int2"       // -2 … 1
	Uint2     Format = "uint2"      // 0 … 3
	Int4      Format = "int4"       // -8 … 7
	Uint4     Format = "uint4"      // 0 … 15
	Int8      Format = "int8"       // -128 … 127
	Uint8     Format = "uint8"      // 0 … 255
	FP8E4M3   Format = "fp8-e4m3"   // up to 448
	FP8E5M2   Format = "fp8-e5m2"   // up to 57344
	NVFP4     Format = "nvfp4"      // E2M1 elements, E4M3 scales, and a scale for the scales
	MXFP4     Format = "mxfp4"      // E2M1 elements, scales are powers of two
	MXFP8     Format = "mxfp8"      // E4M3 elements, scales are powers of two
	MXFP8E5M2 Format = "mxfp8-e5m2" // E5M2 elements, scales are powers of two
	NF4       Format = "nf4"        // 16 quantiles of the normal distribution
	FP4       Format = "fp4"        // as in bitsandbytes
)

// Family is a group of formats with the same kind of scales.
type Family int

const (
	unscaled     Family = iota
	Integer             // package int4
	Float8              // package fp8
	TwoLevel            // package nvfp4: the scales have a scale
	Microscaling        // package mx: scales are powers of two
	Lookup              // package qlora: codes are positions in a table
	Blockwise           // package ggml: blocks are encoded as a whole
)

// Traits describes a format.
type Traits struct {
	Format Format
	Family Family
	Codes  dtype.DType // type of the codes
	Suffix string      // suffix of the name of the tensor of codes
	Block  int         // default block size; 0: the general default
	Only   bool        // Block is the only block size
}

// Table lists the formats, except those of package ggml.
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
	if f := Format(name); name != "" && f.Traits().Format == f {
		return f, nil
	}
	near := Similar(name)
	if len(near) == 0 {
		return "", fmt.Errorf("format %q is not known (known: %s)", name, strings.Join(formatNames(), ", "))
	}
	return "", fmt.Errorf("format %q is not known; did you mean %s?", name, english.WordSeries(names(near), "or"))
}

// Bits is the size of a code; 0 for Float and unknown formats.
func (f Format) Bits() int { return int(f.Traits().Codes.Bits()) }

// Signed reports whether codes are two's complement. Unsigned integers need a zero point to
// represent negative values.
func (f Format) Signed() bool { return f.Traits().Codes.Signed() }

// Scaled reports whether a value is (code - zero point) · scale, with integer codes and one stored
// scale per block. MatMulNBits can read such formats.
func (f Format) Scaled() bool {
	if e := f.Encoding(); e != nil {
		return e.Form.Signed && !e.Form.Nested && !e.Form.Mins
	}
	return f.Traits().Family == Integer
}

// FloatCodes reports whether codes are floats of 8 or 4 bits. GatherBlockQuantized can read such formats.
func (f Format) FloatCodes() bool {
	family := f.Traits().Family
	return family == Float8 || family == TwoLevel || family == Microscaling
}

// MadeByQuantizeLinear reports whether ONNX's QuantizeLinear can compute the codes.
func (f Format) MadeByQuantizeLinear() bool {
	family := f.Traits().Family
	return family == Integer || family == Float8
}

// Traits returns the traits of a format, or the zero Traits for unknown formats.
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

func formatNames() []string { return names(Formats()) }

func names[T ~string](list []T) []string {
	var names []string
	for _, name := range list {
		names = append(names, string(name))
	}
	return names
}

// Default block sizes of formats without their own.
const (
	defaultBlock  = 128
	defaultBlock8 = 32 // for 8 bits, chosen for accuracy
)

// Resolve fills in defaults: the format, if only bits are given, and the block size. It fails if
// the settings contradict each other.
func Resolve(bits int, format Format, block int, zeroPoint bool) (Format, int, error) {
	if format == "" {
		format = integerFormat(cmp.Or(bits, 4), zeroPoint)
		if err := CheckBits(cmp.Or(bits, 4)); err != nil {
			return "", 0, fmt.Errorf("%d bits: %w", bits, err)
		}
	}
	if _, err := ParseFormat(string(format)); err != nil {
		return "", 0, err
	}
	t := format.Traits()
	block = cmp.Or(block, t.defaultBlock())
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

// integerFormat names the integer format with the given bits; it is unsigned if there are zero
// points.
func integerFormat(bits int, zeroPoint bool) Format {
	if zeroPoint {
		return Format(fmt.Sprintf("uint%d", bits))
	}
	return Format(fmt.Sprintf("int%d", bits))
}

func (t Traits) defaultBlock() int {
	if t.Family == Integer && t.Codes.Bits() == 8 {
		return defaultBlock8
	}
	return cmp.Or(t.Block, defaultBlock)
}

// BlockwiseFormats lists the formats of package ggml, including registered ones.
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

// codesOf returns the smallest type for the codes of a form.
func codesOf(f *ggml.Form) dtype.DType {
	switch {
	case f.Values != nil: // codes are positions in a table of 16
		return dtype.Uint4
	case f.Signed && f.Bits <= 2:
		return dtype.Int2
	case f.Signed && f.Bits <= 4:
		return dtype.Int4
	case f.Signed:
		return dtype.Int8
	case f.Bits <= 2:
		return dtype.Uint2
	case f.Bits <= 4:
		return dtype.Uint4
	}
	return dtype.Uint8
}

// Encoding returns the encoding of a blockwise format, or nil.
func (f Format) Encoding() *ggml.Encoding {
	if e, ok := ggml.Lookup(string(f)); ok && e.Form != nil {
		return e
	}
	return nil
}
