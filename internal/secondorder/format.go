package secondorder

import (
	"cmp"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/int4"
)

// Format says what codes are like. A code stands for a multiple of a scale: for integers less the
// zero point, or for one of some Levels.
type Format struct {
	Codec    int4.Codec
	Levels   *Levels // nil: integers, as Codec says; else Codec has the type alone
	Block    int     // elements of a column that share a scale
	Positive bool    // no scale may be negative
	Fixed    bool    // scales stay as they are
}

// Levels are the codes of a format of floats, or of a table.
type Levels struct {
	Values *[256]float32 // of codes
	Outer  float32       // scales are multiplied by it
	Store  func(scale float32) float32

	ascending []level
}

type level struct {
	value, most float32 // most is the midpoint to the next one
	code        byte
}

// NewLevels returns Levels for some codes, from 0 on, with what rounds scales as they are stored.
func NewLevels(values *[256]float32, codes int, outer float32, store func(scale float32) float32) *Levels {
	l := &Levels{Values: values, Outer: outer, Store: store}
	for code, v := range values[:codes] {
		if v-v == 0 {
			l.ascending = append(l.ascending, level{value: v, code: byte(code)})
		}
	}
	slices.SortStableFunc(l.ascending, func(a, b level) int { return cmp.Compare(a.value, b.value) })
	l.ascending = slices.CompactFunc(l.ascending, func(a, b level) bool { return a.value == b.value })
	for i := range l.ascending {
		next := l.ascending[min(i+1, len(l.ascending)-1)]
		l.ascending[i].most = (l.ascending[i].value + next.value) / 2
	}
	return l
}

// at returns the level that is nearest to x. NaN becomes one of the ends.
func (l *Levels) at(x float32) level {
	from, to := 0, len(l.ascending)-1
	for from < to {
		middle := (from + to) / 2
		if x > l.ascending[middle].most {
			from = middle + 1
		} else {
			to = middle
		}
	}
	return l.ascending[from]
}

// largest is the largest value.
func (l *Levels) largest() float32 { return l.ascending[len(l.ascending)-1].value }

// nearest is the multiple that is nearest to x.
func (f *Format) nearest(x float32, zero int32) float32 {
	if f.Levels != nil {
		return f.Levels.at(x).value
	}
	least, greatest := f.Codec.Limits()
	return nearest(x, least-zero, greatest-zero)
}

// code is the code of a multiple.
func (f *Format) code(multiple float32, zero int32) byte {
	if f.Levels != nil {
		return f.Levels.at(multiple).code
	}
	return byte(int32(multiple) + zero)
}

// multiple is what a code stands for.
func (f *Format) multiple(code byte, zero int32) float32 {
	switch {
	case f.Levels != nil:
		return f.Levels.Values[code]
	case f.Codec.Signed:
		return float32(int32(int8(code)) - zero)
	}
	return float32(int32(code) - zero)
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

// step is what multiples are multiplied by, with a scale as it is stored.
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

// value is a multiple as it will be decoded.
func (f *Format) value(multiple, scale float32) float32 {
	v := float32(multiple * f.step(scale))
	if f.Codec.Type == dtype.Float16 || f.Codec.Type == dtype.BFloat16 {
		v = f.Codec.Type.Round(v)
	}
	return v
}

// scale is the scale for a step as it will be stored, or 0 if there is no usable one of that sign.
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
