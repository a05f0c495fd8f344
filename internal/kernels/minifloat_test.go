package kernels

import (
	"math"
	"math/rand/v2"
	"testing"
)

var miniFloats = map[string]*MiniFloat{
	"E4M3FN": E4M3FN, "E5M2": E5M2, "E4M3FNUZ": E4M3FNUZ, "E5M2FNUZ": E5M2FNUZ, "E2M1": E2M1, "SignlessE2M1": SignlessE2M1,
}

// nearestCode is the code that Code should give: by search.
func nearestCode(f *MiniFloat, v float64, negative bool) byte {
	v = min(v, float64(f.Values[f.Top]))
	best := f.Top
	for code := range f.Top + 1 {
		d, least := math.Abs(float64(f.Values[code])-v), math.Abs(float64(f.Values[best])-v)
		if d < least || d == least && code%2 == 0 {
			best = code
		}
	}
	sign := byte(0x80)
	if f.Top == 7 {
		sign = 8
	}
	if negative && !(best == 0 && (f == E4M3FNUZ || f == E5M2FNUZ)) {
		return byte(best) | sign
	}
	return byte(best)
}

// Every number, every midpoint of neighbours, and what lies next to them.
func TestMiniFloatCode(t *testing.T) {
	for name, f := range miniFloats {
		check := func(v float32) {
			t.Helper()
			if v < 0 {
				return
			}
			if got, want := f.Code(v, 1), nearestCode(f, float64(v), false); got != want {
				t.Fatalf("%s: %v has code %#x, want %#x", name, v, got, want)
			}
			if got, want := f.Code(-v, 1), nearestCode(f, float64(v), v > 0 || f != SignlessE2M1); got != want {
				t.Fatalf("%s: %v has code %#x, want %#x", name, -v, got, want)
			}
		}
		around := func(v float32) {
			t.Helper()
			check(math.Nextafter32(v, -inf))
			check(v)
			check(math.Nextafter32(v, inf))
		}
		for code := range f.Top {
			a, b := f.Values[code], f.Values[code+1]
			if a >= b {
				t.Fatalf("%s: code %#x is %v, the next %v", name, code, a, b)
			}
			around(a)
			around((a + b) / 2)
		}
		top := f.Values[f.Top]
		around(top)
		around(top * 1.03125)
		around(top * 2)
		around(math.MaxFloat32)
		around(math.SmallestNonzeroFloat32)
		around(0x1p-126)
	}
}

func TestMiniFloatSpecials(t *testing.T) {
	for name, f := range miniFloats {
		top := byte(f.Top)
		if got := f.Code(nan, 1); got != top {
			t.Errorf("%s: NaN has code %#x, want %#x", name, got, top)
		}
		if got := f.Code(inf, 1); got != top {
			t.Errorf("%s: infinity has code %#x, want %#x", name, got, top)
		}
		if got := f.Code(0, 0); got != top {
			t.Errorf("%s: 0/0 has code %#x, want %#x", name, got, top)
		}
		for _, v := range []float32{nan, -nan, inf, -inf} {
			if got := f.Magnitude(v); got <= f.Top {
				t.Errorf("%s: the magnitude of %v has code %#x", name, v, got)
			}
		}
	}
}

func TestFloatBlocksAndColumns(t *testing.T) {
	for range implementations(t) {
		r := random(11)
		for name, f := range miniFloats {
			for n := range 50 {
				rows := r.IntN(4)
				x, scale := samples(r, rows*(n+1)), scales(r, n+1)
				q, y := make([]byte, len(x)), make([]float32, len(x))
				factor := float32(0.5 + r.Float64())
				var sums, wantSums ErrorSums
				QuantizeFloatColumns(q, x, scale, factor, f, Float32, &sums)
				DecodeColumns(y, q, scale, factor, &f.Values)
				for i, v := range x {
					s := scale[i%(n+1)] * factor
					if want := f.Code(v, s); q[i] != want {
						t.Fatalf("%s: %v/%v has code %#x, want %#x", name, v, s, q[i], want)
					}
					if want := f.Values[q[i]] * s; math.Float32bits(y[i]) != math.Float32bits(want) {
						t.Fatalf("%s: code %#x times %v is %v, want %v", name, q[i], s, y[i], want)
					}
				}
				for at := 0; at < len(x); at += n + 1 {
					wantSums.addGo(x[at:at+n+1], y[at:at+n+1])
				}
				if sums != wantSums {
					t.Fatalf("%s: errors %v, want %v", name, sums, wantSums)
				}
				p, z := make([]byte, len(x)), make([]float32, len(x))
				QuantizeFloatBlocks(p, x, scale[:1], factor, len(x), len(x), f, Float32, &sums)
				DecodeBlock(z, p, scale[0]*factor, &f.Values)
				for i := 0; i < len(x); i += n + 1 {
					if p[i] != q[i] || math.Float32bits(z[i]) != math.Float32bits(y[i]) {
						t.Fatalf("%s: %v in a block has code %#x, in a column %#x", name, x[i], p[i], q[i])
					}
				}
			}
		}
	}
}

func TestNearest(t *testing.T) {
	r := random(12)
	for range 20 {
		values := []float32{-1}
		for v := float32(-1); v < 1; {
			v = min(v+float32(0.006+r.Float64()*0.2), 1)
			values = append(values, v)
		}
		r.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
		n := NewNearest(values)
		check := func(v float32) {
			t.Helper()
			got := float64(values[n.code(v, 1)])
			for _, w := range values {
				w := float64(w)
				d, least := math.Abs(w-float64(v)), math.Abs(got-float64(v))
				if d < least || d == least && math.Abs(w) < math.Abs(got) {
					t.Fatalf("the nearest to %v is %v, not %v", v, w, got)
				}
			}
		}
		for i := -2048; i <= 2048; i++ {
			v := float32(i) / 2048
			for _, w := range []float32{v, math.Nextafter32(v, 2), math.Nextafter32(v, -2)} {
				check(min(max(w, -1), 1))
			}
		}
		for _, a := range values {
			for _, b := range values {
				m := (a + b) / 2
				check(m)
				check(math.Nextafter32(m, -1))
				check(math.Nextafter32(m, 1))
			}
		}
		for range 1000 {
			check(r.Float32()*2 - 1)
		}
	}
}

func TestNearestBlocksAndColumns(t *testing.T) {
	for range implementations(t) {
		r := random(13)
		n := NewNearest([]float32{0, 0.25, 1, -0.5, -1})
		for columns := 1; columns < 40; columns++ {
			x, scale := make([]float32, 3*columns), scales(r, columns)
			scale[r.IntN(columns)] = 0
			for i := range x {
				x[i] = (r.Float32()*2 - 1) * scale[i%columns]
			}
			q := make([]byte, len(x))
			var sums ErrorSums
			QuantizeNearestColumns(q, x, scale, n, Float32, &sums)
			for i := range columns {
				column, p := []float32{x[i], x[i+columns], x[i+2*columns]}, make([]byte, 3)
				QuantizeNearestBlocks(p, column, scale[i:i+1], 3, 3, n, Float32, &sums)
				for j, c := range p {
					if want := n.code(column[j], scale[i]); c != want || q[i+j*columns] != want {
						t.Fatalf("%v/%v has code %d in a block, %d in a column, want %d", column[j], scale[i], c, q[i+j*columns], want)
					}
					if scale[i] == 0 && c != 0 {
						t.Fatalf("0 with the scale 0 has code %d", c)
					}
				}
			}
		}
	}
}

func TestBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 0))
	for range 200 {
		rows, k, block := r.IntN(4), 1+r.IntN(20), 1+r.IntN(25)
		at, count := 0, 0
		for i, b := range Blocks(rows*k, k, block) {
			if i != count || b.Start != at || b.End != min(at+block, at/k*k+k) {
				t.Fatalf("rows of %d in blocks of %d: block %d is %v, after %d", k, block, i, b, at)
			}
			at, count = b.End, count+1
		}
		if at != rows*k {
			t.Fatalf("%d rows of %d in blocks of %d end at %d", rows, k, block, at)
		}
	}
	for name, f := range map[string]func(){
		"no whole rows": func() { Blocks(5, 2, 1) },
		"block of 0":    func() { Blocks(4, 2, 0) },
		"row of 0":      func() { AbsMaxBlocks(nil, make([]float32, 1), 0, 1) },
		"no columns":    func() { CheckColumns(1, 0) },
		"part of a row": func() { CheckColumns(3, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}
