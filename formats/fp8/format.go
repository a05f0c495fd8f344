package fp8

import (
	"fmt"
	"math"

	"onnxquant/internal/kernels"
)

// Format is a floating-point type of 8 bits.
type Format uint8

// The formats. The zero Format is E4M3FN.
const (
	E4M3FN Format = iota
	E5M2
	E4M3FNUZ
	E5M2FNUZ
)

var formats = [...]struct {
	name string
	kind *kernels.MiniFloat
	over byte // code of numbers beyond the largest, without sign
	nan  byte // code of NaN, without sign
}{
	E4M3FN:   {"float8_e4m3fn", kernels.E4M3FN, 0x7f, 0x7f},
	E5M2:     {"float8_e5m2", kernels.E5M2, 0x7c, 0x7e},
	E4M3FNUZ: {"float8_e4m3fnuz", kernels.E4M3FNUZ, 0x80, 0x80},
	E5M2FNUZ: {"float8_e5m2fnuz", kernels.E5M2FNUZ, 0x80, 0x80},
}

// ParseFormat returns the format that String calls by that name.
func ParseFormat(name string) (Format, error) {
	for f, d := range formats {
		if d.name == name {
			return Format(f), nil
		}
	}
	return 0, fmt.Errorf("8-bit float type %q is not known", name)
}

// String returns the name that numpy's ml_dtypes has for the format, such as
// float8_e4m3fn.
func (f Format) String() string {
	if !f.valid() {
		return "unknown 8-bit float type"
	}
	return formats[f].name
}

func (f Format) valid() bool { return int(f) < len(formats) }

// Max returns the largest number.
func (f Format) Max() float32 {
	kind := formats[f].kind
	return kind.Values[kind.Top]
}

// Decode returns the number that a code represents.
func (f Format) Decode(code byte) float32 { return formats[f].kind.Values[code] }

// Encode returns the code of the number nearest to x, ties to even. Beyond the largest number, it is
// the largest if saturate is set, else infinity or, in formats without infinity, NaN.
func (f Format) Encode(x float32, saturate bool) byte {
	d := &formats[f]
	sign := byte(math.Float32bits(x) >> 24 & 0x80)
	switch {
	case x != x:
		return d.nan | sign
	case !saturate && d.kind.Magnitude(x) > d.kind.Top:
		return d.over | sign
	}
	return d.kind.Code(x, 1)
}
