package secondorder

import (
	"cmp"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/int4"
)

// Format describes the codes. A code is decoded as a scale times a multiple: an integer minus the zero
// point, or one of the values of Levels.
type Format struct {
	Codec    int4.Codec
	Levels   *Levels // nil: integers, as Codec says; otherwise only the type of Codec is used
	Block    int     // elements of a column that share a scale
	Positive bool    // no scale may be negative
	Fixed    bool    // scales stay as they are
}

// Levels are the codes of a format of floats, or of a table.
type Levels struct {
	Values *[256]float32 // of codes
	Outer  float32       // scales are multiplied by it
	Store  func(scale float32) float32

	// The values in ascending order, their codes, and the ranks of the midpoints between values i and
	// i+1. Midpoints at infinity pad the list to a power of two minus one.
	values    []float32
	codes     []byte
	midpoints []int64
}

// rank orders numbers as they are. NaN comes first or last.
func rank(x float32) int64 {
	b := int32(math.Float32bits(x))
	return int64(b ^ b>>31&math.MaxInt32)
}

// NewLevels returns Levels for some codes, from 0 on, with what rounds scales as they are stored.
func NewLevels(values *[256]float32, codes int, outer float32, store func(scale float32) float32) *Levels {
	l := &Levels{Values: values, Outer: outer, Store: store}
	for code, v := range values[:codes] {
		if v-v == 0 {
			l.codes = append(l.codes, byte(code))
		}
	}
	slices.SortStableFunc(l.codes, func(a, b byte) int { return cmp.Compare(values[a], values[b]) })
	l.codes = slices.CompactFunc(l.codes, func(a, b byte) bool { return values[a] == values[b] })
	for i, code := range l.codes {
		if v := values[code]; i > 0 {
			l.midpoints = append(l.midpoints, rank((l.values[i-1]+v)/2))
		}
		l.values = append(l.values, values[code])
	}
	for n := len(l.midpoints); n&(n+1) != 0; n++ {
		l.midpoints = append(l.midpoints, rank(float32(math.Inf(1))))
	}
	return l
}

// at returns the index of the value nearest to x. NaN becomes the first or the last value. The search
// is free of branches that depend on x, which processors would mispredict half of the time.
func (l *Levels) at(x float32) int {
	i, r := 0, rank(x)
	for half := (len(l.midpoints) + 1) / 2; half > 0; half /= 2 {
		i += half & int((l.midpoints[i+half-1]-r)>>63) // if the midpoint is below
	}
	return min(i, len(l.values)-1)
}

// largest is the largest value.
func (l *Levels) largest() float32 { return l.values[len(l.values)-1] }

// nearest replaces numbers by the multiples that are nearest to them.
func (f *Format) nearest(x []float32, zeros []byte) {
	if f.Levels != nil {
		for i, v := range x {
			x[i] = f.Levels.values[f.Levels.at(v)]
		}
		return
	}
	least, greatest := f.Codec.Limits()
	if !f.Codec.ZeroPoint {
		least, greatest := float32(least-f.zero(0)), float32(greatest-f.zero(0))
		for i, v := range x {
			x[i] = nearest(v, least, greatest)
		}
		return
	}
	for i, v := range x {
		zero := f.zero(zeros[i])
		x[i] = nearest(v, float32(least-zero), float32(greatest-zero))
	}
}

// code sets codes from multiples.
func (f *Format) code(codes []byte, multiples []float32, zeros []byte) {
	for i, v := range multiples {
		if f.Levels != nil {
			codes[i] = f.Levels.codes[f.Levels.at(v)]
		} else {
			codes[i] = byte(int32(v) + f.zero(zeros[i]))
		}
	}
}

// multiples decodes codes to multiples.
func (f *Format) multiples(multiples []float32, codes, zeros []byte) {
	for i, code := range codes {
		switch {
		case f.Levels != nil:
			multiples[i] = f.Levels.Values[code]
		case f.Codec.Signed:
			multiples[i] = float32(int32(int8(code)) - f.zero(zeros[i]))
		default:
			multiples[i] = float32(int32(code) - f.zero(zeros[i]))
		}
	}
}

// zero is the value of a stored zero point.
func (f *Format) zero(z byte) int32 {
	switch {
	case f.Levels != nil || !f.Codec.ZeroPoint && f.Codec.Signed:
		return 0
	case !f.Codec.ZeroPoint:
		return 1 << (f.Codec.Bits - 1)
	case f.Codec.Signed:
		return int32(int8(z))
	}
	return int32(z)
}

// step is the factor of multiples for a stored scale.
func (f *Format) step(scale float32) float32 {
	if f.Levels != nil {
		return scale * f.Levels.Outer
	}
	return scale
}

// reach is half of the range that codes with a scale cover.
func (f *Format) reach(scale float32) float64 {
	if f.Levels != nil {
		return math.Abs(float64(f.step(scale))) * float64(f.Levels.largest())
	}
	least, greatest := f.Codec.Limits()
	return math.Abs(float64(scale)) * float64(greatest-least) / 2
}

// decode sets values to multiples as they will be decoded.
func (f *Format) decode(values, multiples, scales []float32) {
	values, scales = values[:len(multiples)], scales[:len(multiples)]
	outer := f.step(1)
	for i, v := range multiples {
		values[i] = v * float32(scales[i]*outer)
	}
	if f.Codec.Type == dtype.Float16 || f.Codec.Type == dtype.BFloat16 {
		f.Codec.Type.RoundAll(values)
	}
}

// value is a multiple as it will be decoded.
func (f *Format) value(multiple, scale float32) float32 {
	v := float32(multiple * f.step(scale))
	if f.Codec.Type == dtype.Float16 || f.Codec.Type == dtype.BFloat16 {
		v = f.Codec.Type.Round(v)
	}
	return v
}

// scale returns the stored scale nearest to a step; 0 if no usable scale has that sign.
func (f *Format) scale(step float64, positive bool) float32 {
	var stored float32
	if f.Levels != nil {
		stored = f.Levels.Store(float32(step) / f.Levels.Outer)
		if v := f.value(f.Levels.largest(), stored); v-v != 0 {
			return 0
		}
	} else {
		stored = f.Codec.RoundScale(float32(step))
	}
	if stored > 0 != positive || math.Abs(float64(stored)) < 0x1p-126 || stored-stored != 0 {
		return 0
	}
	return stored
}

// Stored returns a scale as it is stored.
func (f *Format) Stored(scale float32) float32 {
	if f.Levels != nil {
		return f.Levels.Store(scale)
	}
	return f.Codec.RoundScale(scale)
}
