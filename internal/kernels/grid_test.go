package kernels

import (
	"math"
	"math/rand/v2"
	"testing"
)

// sideBySide returns blocks of each kind as a GridSearch takes them.
func sideBySide(t testing.TB, r *rand.Rand, rows int) []float32 {
	blocks, x := searched(t, r, GridLanes, rows), fenced[float32](t, GridLanes*rows)
	BlockLanes(x, blocks, rows, rows, 0, GridLanes, 0, rows, 1)
	return x
}

// newGridSearch returns a search for the scales of x, as of codes of so many bits.
func newGridSearch(r *rand.Rand, x []float32, bits int) *GridSearch {
	steps := float32(int(1)<<bits - 1)
	s := &GridSearch{Steps: steps, ToZero: steps}
	for lane := range GridLanes {
		var lo, hi float32
		for i := lane; i < len(x); i += GridLanes {
			lo, hi = min(lo, x[i]), max(hi, x[i])
		}
		s.PerUnit[lane] = 1 / max(-lo, hi)
		s.First[lane], s.Distance[lane] = steps/3, steps/20*r.Float32()
		s.Middle[lane], s.Slope[lane] = steps/2, (lo+hi)*s.PerUnit[lane]/2
	}
	if r.IntN(2) == 0 {
		s.LeastZero, s.ToZero = (steps-1)/2, (steps+1)/2
	}
	return s
}

// The assembly finds what the plain loops find, whatever the elements.
func TestGridSearch(t *testing.T) {
	for name := range implementations(t) {
		r := rand.New(rand.NewPCG(3, 3))
		for range 200 {
			x := sideBySide(t, r, 1+r.IntN(100))
			for range r.IntN(8) { // NaN, infinities and subnormal numbers too
				x[r.IntN(len(x))] = math.Float32frombits(r.Uint32())
				x[r.IntN(len(x))] = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 1e-45}[r.IntN(4)]
			}
			got := newGridSearch(r, x, 1<<(1+r.IntN(3)))
			all, want := r.IntN(2) == 0, *got
			got.Find(x, all)
			want.findGo(x, all)
			for what, lanes := range map[string][2]*[GridLanes]float32{
				"inverse": {&got.Inverse, &want.Inverse}, "zero point": {&got.Zero, &want.Zero},
				"xx": {&got.XX, &want.XX}, "xq": {&got.XQ, &want.XQ}, "qq": {&got.QQ, &want.QQ},
			} {
				sameNumbers(t, name+": "+what, lanes[0][:], lanes[1][:])
			}
		}
	}
}

// Of many scales and zero points none has codes that are much nearer in direction than what is found.
func TestGridSearchFinds(t *testing.T) {
	const rows, steps = 32, 15
	r := rand.New(rand.NewPCG(4, 4))
	x := make([]float32, rows*GridLanes)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	s := newGridSearch(r, x, 4)
	s.LeastZero, s.ToZero = 0, steps
	for lane := range GridLanes {
		s.First[lane], s.Distance[lane] = 5, 0.5
	}
	s.Find(x, true)
	for lane := range GridLanes {
		var most, xx float64
		for inverse := 5.0; inverse < 11; inverse += 0.01 {
			for zero := range steps + 1 {
				var xq, qq float64
				xx = 0
				for i := lane; i < len(x); i += GridLanes {
					v := float64(x[i] * s.PerUnit[lane])
					q := min(max(math.RoundToEven(v*inverse), float64(-zero)), float64(steps-zero))
					xx, xq, qq = xx+v*v, xq+v*q, qq+q*q
				}
				most = max(most, xq*xq/qq)
			}
		}
		found := float64(s.XQ[lane]) * float64(s.XQ[lane]) / float64(s.QQ[lane])
		if least := xx - most; xx-found > 1.1*least {
			t.Errorf("lane %d has the error %v, could have %v", lane, xx-found, least)
		}
	}
}

// Errors are those of the codes of QuantizeColumns.
func TestAddGridErrors(t *testing.T) {
	for name := range implementations(t) {
		r := rand.New(rand.NewPCG(6, 6))
		for range 100 {
			rows := 1 + r.IntN(40)
			x := sideBySide(t, r, rows)
			steps := int32(1)<<(1<<(1+r.IntN(3))) - 1 // of 2, 4 or 8 bits
			f := Format{Lo: -(steps/2 + 1), Hi: steps / 2, Type: Type(r.IntN(3))}
			if r.IntN(2) == 0 {
				f.Lo, f.Hi = 0, steps
			}
			var grid, scale [GridLanes]float32
			var zero [GridLanes]byte
			for lane := range GridLanes {
				grid[lane] = float32(math.Ldexp(1+r.Float64(), r.IntN(40)-20) * float64(1-2*r.IntN(2)))
				scale[lane] = grid[lane] * (1 + r.Float32()/8)
				zero[lane] = byte(f.Lo + r.Int32N(steps+1))
			}
			if f.Type != Float32 { // no element and no code is beyond these types
				for i := range x {
					x[i] = float32(math.Mod(float64(x[i]), 1000))
				}
			}
			var got [GridLanes]float64
			AddGridErrors(&got, x, &grid, &scale, &zero, f)
			q, y, want := make([]byte, len(x)), make([]float32, len(x)), [GridLanes]float64{}
			QuantizeColumns(q, x, grid[:], zero[:], f, new(ErrorSums))
			DequantizeColumnsZero(y, q, scale[:], zero[:], f.Lo)
			round(y, f.Type)
			for i, v := range x {
				d := float64(v) - float64(y[i])
				want[i%GridLanes] += float64(d * d)
			}
			for lane, w := range want {
				if got[lane] != w && (got[lane] == got[lane] || w == w) {
					t.Fatalf("%s: %v, lane %d: error %v, want %v", name, f, lane, got[lane], w)
				}
			}
		}
	}
}
