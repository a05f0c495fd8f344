package kernels

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// eachKind yields what quantizes to small floats and to tables: its plain form,
// its factor, and its fast forms.
func eachKind(r *rand.Rand, yield func(k quantizeKind)) {
	for name, f := range miniFloats {
		factor := []float32{1, 0.3}[r.IntN(2)]
		yield(quantizeKind{
			name, f, factor, 1 / f.Values[f.Top],
			func(q []byte, x, scale []float32, t Type, sums *ErrorSums) {
				QuantizeFloatColumns(q, x, scale, factor, f, t, sums)
			},
			func(q []byte, x, scale []float32, k, block int, t Type, sums *ErrorSums) {
				QuantizeFloatBlocks(q, x, scale, factor, k, block, f, t, sums)
			},
		})
	}
	for name, values := range nearestTables {
		n := NewNearest(values)
		yield(quantizeKind{
			name, n, 1, 1,
			func(q []byte, x, scale []float32, t Type, sums *ErrorSums) {
				QuantizeNearestColumns(q, x, scale, n, t, sums)
			},
			func(q []byte, x, scale []float32, k, block int, t Type, sums *ErrorSums) {
				QuantizeNearestBlocks(q, x, scale, k, block, n, t, sums)
			},
		})
	}
}

type quantizeKind struct {
	name    string
	by      quantizer
	factor  float32
	unit    float32 // of the scale of elements up to 1
	columns func(q []byte, x, scale []float32, t Type, sums *ErrorSums)
	blocks  func(q []byte, x, scale []float32, k, block int, t Type, sums *ErrorSums)
}

// nearestTables are tables of 16 numbers, of 15, of 3, and of too many for ranks.
var nearestTables = map[string][]float32{
	"sixteen":   {-1, -0.7, -0.5, -0.4, -0.3, -0.2, -0.1, 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1},
	"two zeros": {0, 0.0625 / 12, 8. / 12, 1, 4. / 12, 0.5, 2. / 12, 0.25, 0, -0.0625 / 12, -8. / 12, -1, -4. / 12, -0.5, -2. / 12, -0.25},
	"three":     {1, -1, 0.25},
	"seventeen": {-1, -0.7, -0.5, -0.4, -0.3, -0.2, -0.1, 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1},
}

func TestRanks(t *testing.T) {
	for name, values := range nearestTables {
		if got, want := NewNearest(values).ranks != nil, len(values) <= 16; got != want {
			t.Errorf("table of %s has ranks: %t, want %t", name, got, want)
		}
	}
}

func TestQuantizingFloatsIsThatOfPlainGo(t *testing.T) {
	each(t, func(t *testing.T, r *rand.Rand, n int) {
		for _, typ := range []Type{Float32, Float16, BFloat16} {
			checkSameQuantizeFloat(t, r, n, 1+r.IntN(4), typ, false)
		}
		checkSameQuantizeFloat(t, r, n, 1+r.IntN(4), Float32, true)
	})
}

// checkSameQuantizeFloat compares rows of n columns, and the same as blocks, by each
// kind. If all is set, elements are of any bits, and only codes are compared.
func checkSameQuantizeFloat(t *testing.T, r *rand.Rand, n, rows int, typ Type, all bool) {
	t.Helper()
	eachKind(r, func(kind quantizeKind) {
		x := fenced[float32](t, rows*n)
		_, nearest := kind.by.(*Nearest)
		for _, blocks := range []bool{false, true} {
			length, count := 0, n
			if blocks {
				length = 1 + r.IntN(n)
				count = rows * ((n-1)/length + 1)
			}
			scale := fenced[float32](t, count)
			for i, s := range scales(r, count) {
				if r.IntN(8) == 0 {
					s = 1 // exact ties
				}
				scale[i] = s * kind.unit
			}
			scaleOf := func(i int) int { return i % n }
			if blocks {
				scaleOf = func(i int) int { return i/n*((n-1)/length+1) + i%n/length }
			}
			if nearest && r.IntN(2) == 0 {
				scale[r.IntN(count)] = 0
			}
			for i := range x {
				s := scale[scaleOf(i)] * kind.factor
				x[i] = elementFor(r, kind.by, s)
			}
			if all && !nearest {
				scale[r.IntN(count)] = []float32{0, inf, 1e-45, 1e38}[r.IntN(4)]
				copy(x, wild(t, r, len(x)))
			}
			q, want := fenced[byte](t, len(x)), make([]byte, len(x))
			sums := ErrorSums{sqErr: [8]float64{1, 2, 3, 4, 5, 6, 7, 8}, sq: [8]float64{9, 8, 7, 6, 5, 4, 3, 2}, maxAbs: 5}
			wantSums := sums
			if blocks {
				kind.blocks(q, x, scale, n, length, typ, &sums)
				for i, b := range Blocks(len(x), n, length) {
					quantizeBlocksBy(kind.by, want[b.Start:b.End], x[b.Start:b.End], scale[i:i+1], kind.factor, length, typ, &wantSums)
				}
			} else {
				kind.columns(q, x, scale, typ, &sums)
				quantizeColumnsBy(kind.by, want, x, scale, kind.factor, typ, &wantSums)
			}
			if i := firstDifference(q, want); i >= 0 {
				t.Fatalf("%s, rows of %d, blocks of %d: %v / %v has code %#x, want %#x",
					kind.name, n, length, x[i], scale[scaleOf(i)]*kind.factor, q[i], want[i])
			}
			if sums != wantSums && !all {
				t.Fatalf("%s, type %d, rows of %d, blocks of %d: errors %v\nwant %v", kind.name, typ, n, length, sums, wantSums)
			}
		}
	})
}

// Errors of tries are those of quantizing with each of their scales.
func TestTries(t *testing.T) {
	each(t, func(t *testing.T, r *rand.Rand, n int) {
		eachKind(r, func(kind quantizeKind) {
			scale, x, e := fenced[float32](t, 1+r.IntN(40)), fenced[float32](t, n), make([]float64, 41)
			for i, s := range scales(r, len(scale)) {
				scale[i] = s * kind.unit
			}
			for i := range x {
				x[i] = elementFor(r, kind.by, scale[r.IntN(len(scale))]*kind.factor)
			}
			for _, typ := range []Type{Float32, Float16, BFloat16} {
				e := e[:len(scale)]
				switch by := kind.by.(type) {
				case *MiniFloat:
					TryFloat(e, x, scale, kind.factor, by, typ)
				case *Nearest:
					TryNearest(e, x, scale, by, typ)
				}
				for i := range scale {
					var sums ErrorSums
					kind.blocks(make([]byte, n), x, scale[i:i+1], n, n, typ, &sums)
					if want, _, _ := sums.Totals(); e[i] != want {
						t.Fatalf("%s, type %d, %d elements: error %v, quantized %v", kind.name, typ, n, e[i], want)
					}
				}
			}
		})
	})
}

func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// elementFor returns an element for a scale: among others a number that a code stands
// for or one half way to the next, or a neighbour of these, or a subnormal one.
func elementFor(r *rand.Rand, by quantizer, s float32) float32 {
	var v float32
	switch by := by.(type) {
	case *MiniFloat:
		code := r.IntN(int(by.Top))
		a, b := by.Values[code], by.Values[code+1]
		v = []float32{a, (a + b) / 2, a + r.Float32()*(b-a), by.Values[by.Top] * (1 + r.Float32()), 0}[r.IntN(5)]
	case *Nearest:
		a, b := by.Values[r.IntN(256)], by.Values[r.IntN(256)]
		v = []float32{a, (a + b) / 2, a + r.Float32()*(b-a), 1, 0}[r.IntN(5)]
	}
	v *= s
	switch r.IntN(6) {
	case 0:
		v = math.Nextafter32(v, inf)
	case 1:
		v = math.Nextafter32(v, -inf)
	case 2:
		v = math.Float32frombits(uint32(r.IntN(1 << 23)))
	}
	if _, nearest := by.(*Nearest); nearest {
		v = min(max(v, -s), s)
	}
	if r.IntN(2) == 0 {
		return -v
	}
	return v
}

// Every number, every midpoint and their neighbours, with either sign, in each
// instruction set against the rule for one element.
func TestQuantizeFloatTies(t *testing.T) {
	for name, f := range miniFloats {
		var x []float32
		around := func(v float32) {
			for _, v := range []float32{v, -v} {
				x = append(x, math.Nextafter32(v, -inf), v, math.Nextafter32(v, inf))
			}
		}
		for code := range f.Top {
			around(f.Values[code])
			around((f.Values[code] + f.Values[code+1]) / 2)
		}
		top := f.Values[f.Top]
		around(top)
		around(top * 1.03125)
		around(top * 2)
		x = append(x, math.MaxFloat32, -math.MaxFloat32, 1e-45, -1e-45, 0x1p-126, inf, -inf, nan, -nan)
		want := make([]byte, len(x))
		for i, v := range x {
			want[i] = f.Code(v, 1)
		}
		for instructions := range implementations(t) {
			q := make([]byte, len(x))
			var sums ErrorSums
			QuantizeFloatColumns(q, x, slices.Repeat([]float32{1}, len(x)), 1, f, Float32, &sums)
			if i := firstDifference(q, want); i >= 0 {
				t.Fatalf("%s with %s: %v has code %#x, want %#x", name, instructions, x[i], q[i], want[i])
			}
			finite := x[:len(x)-4]
			y := make([]float32, len(finite))
			DecodeBlock(y, q[:len(finite)], 1, &f.Values)
			sums = ErrorSums{}
			QuantizeFloatBlocks(q, finite, []float32{1}, 1, len(finite), len(finite), f, Float32, &sums)
			var wantSums ErrorSums
			wantSums.addGo(finite, y)
			if sums != wantSums {
				t.Fatalf("%s with %s: errors %v, want %v", name, instructions, sums, wantSums)
			}
		}
	}
}

func FuzzQuantizingFloatsIsThatOfPlainGo(f *testing.F) {
	f.Add(uint64(1), uint16(17), uint8(3), uint8(1))
	f.Add(uint64(2), uint16(300), uint8(1), uint8(9))
	f.Fuzz(func(t *testing.T, seed uint64, n uint16, rows, which uint8) {
		for range implementations(t) {
			checkSameQuantizeFloat(t, random(seed), 1+int(n)%600, 1+int(rows)%8, Type(which%3), which&4 != 0)
		}
	})
}
