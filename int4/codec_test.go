package int4

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/x448/float16"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
	"onnxquant/quantutil"
)

// codecs yields every format with every type.
func codecs(yield func(Codec) bool) {
	for _, t := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		for _, bits := range []int{2, 4, 8} {
			for i := range 4 {
				if !yield(Codec{Bits: bits, Signed: i&1 != 0, ZeroPoint: i&2 != 0, Type: t}) {
					return
				}
			}
		}
	}
}

func (c Codec) String() string {
	return fmt.Sprintf("bits=%d signed=%t zero=%t %s", c.Bits, c.Signed, c.ZeroPoint, c.Type)
}

// greatest is the largest number of a codec's type.
func (c Codec) greatest() float32 {
	switch c.Type {
	case dtype.Float16:
		return 65504
	case dtype.BFloat16:
		return 0x1.fep127
	}
	return math.MaxFloat32
}

// code returns the number that a byte holds.
func (c Codec) code(b byte) int {
	if c.Signed {
		return int(int8(b))
	}
	return int(b)
}

// want is the package comment's rule for one block, in float64: each step
// is exact there before it is rounded to the type.
type want struct {
	scale float64
	zero  int
	codes []int
}

func wantBlock(c Codec, x []float32) want {
	f32 := func(v float64) float64 { return float64(float32(v)) }
	f16 := func(v float64) float64 { return float64(float16.Fromfloat32(float32(v)).Float32()) }
	bf16 := func(v float64) float64 { return float64(dtype.RoundBFloat16(float32(v))) }
	step, last := f32, f32
	scale := func(span, steps float64) float64 { return max(last(span/steps), 0x1p-126) }
	switch c.Type {
	case dtype.Float16:
		step, last = f16, f16
		scale = func(span, steps float64) float64 {
			if s := f16(span / steps); s >= 1e-5 {
				return s
			}
			return math.Ceil(span/steps*0x1p24) * 0x1p-24
		}
	case dtype.BFloat16:
		last = bf16
	}
	var amax, lo, hi float64
	for _, v := range x {
		amax = max(amax, math.Abs(float64(v)))
		lo, hi = min(lo, float64(v)), max(hi, float64(v))
	}
	half := 1 << (c.Bits - 1)
	var w want
	n := float64(2*half - 1) // the greatest code, when the least is 0
	reach := float64(half - 1)
	z := half
	if c.ZeroPoint {
		w.scale = scale(step(hi-lo), n)
		switch {
		case lo == 0 && hi == 0:
			w.scale = last(step(1e-5) / n)
		case math.IsInf(step(hi-lo), 0):
			w.scale = last(step(step(hi/n) - step(lo/n)))
		}
		z = int(min(max(math.RoundToEven(step(-lo/w.scale)), 0), n))
		reach = max(float64(z), n-float64(z))
	} else {
		w.scale = scale(amax, reach)
		if amax == 0 {
			w.scale = last(1e-5)
		}
	}
	lower := func(reach float64) {
		if !math.IsInf(last(reach*w.scale), 0) {
			return
		}
		s := float32(last(float64(c.greatest()) / reach)) // even if that is rounded up
		for float64(s) != last(float64(s)) || math.IsInf(last(reach*float64(s)), 0) {
			s = math.Nextafter32(s, 0)
		}
		w.scale = float64(s)
	}
	lower(reach)
	if !c.ZeroPoint && math.RoundToEven(step(amax/w.scale)) > reach {
		lower(reach + 1)
	}
	shift := 0
	if c.Signed {
		shift = half
	}
	w.zero = z - shift
	for _, v := range x {
		q := math.RoundToEven(step(float64(v)/w.scale)) + float64(z)
		w.codes = append(w.codes, int(min(max(q, 0), n))-shift)
	}
	return w
}

// encode runs a codec over [rows, k] or, with columns, [k, rows], in one block.
func encode(c Codec, x []float32) (scale float32, zero byte, q []byte, finite bool) {
	lo, hi, s, z := make([]float32, 1), make([]float32, 1), make([]float32, 1), make([]byte, 1)
	q = make([]byte, len(x))
	c.ObserveBlocks(lo, hi, x, len(x), len(x))
	finite = c.Scales(s, z, lo, hi)
	if finite {
		c.EncodeBlocks(q, x, s, z, len(x), len(x))
	}
	return s[0], z[0], q, finite
}

// checkBlock holds a codec against the rule and what users rely on.
func checkBlock(t *testing.T, c Codec, x []float32) {
	t.Helper()
	s, zero, q, finite := encode(c, x)
	if !finite {
		t.Fatalf("%v: finite weights %v reported", c, x)
	}
	w := wantBlock(c, x)
	if float64(s) != w.scale {
		t.Fatalf("%v: %v has scale %v, want %v", c, x, s, w.scale)
	}
	if c.HasZeroPoints() && c.code(zero) != w.zero {
		t.Fatalf("%v: %v has zero point %d, want %d", c, x, c.code(zero), w.zero)
	}
	for i, b := range q {
		if c.code(b) != w.codes[i] {
			t.Fatalf("%v: %v with scale %v has codes % x, want %v", c, x, s, q, w.codes)
		}
	}
	y := make([]float32, len(x))
	c.DecodeBlocks(y, q, []float32{s}, []byte{zero}, len(x), len(x))
	for i, v := range y {
		if !kernels.IsFinite(v) {
			t.Fatalf("%v: %v with scale %v became %v", c, x, s, y)
		}
		if x[i] == 0 && v != 0 {
			t.Fatalf("%v: 0 became %v", c, v)
		}
		// Where a scale is rounded or lowered the largest weights may saturate;
		// bfloat16 has no room for 256 codes besides.
		slack := 1.1
		if c.Type == dtype.BFloat16 {
			slack = 2
		}
		if e := math.Abs(float64(v) - float64(x[i])); e > slack*float64(s) {
			t.Fatalf("%v: %v with scale %v became %v", c, x[i], s, v)
		}
	}
}

// round rounds a block to the codec's type.
func round(c Codec, x []float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = c.Type.Round(v)
	}
	return y
}

func TestBlocks(t *testing.T) {
	for c := range codecs {
		m := c.greatest()
		for _, x := range [][]float32{
			{0},
			{0, float32(math.Copysign(0, -1)), 0},
			{1}, {-1}, {7}, {-8},
			{1, 2, 3}, {-1, -2, -3},
			{3, 3, 3, 3}, {-3, -3},
			{100, 100.5}, {-100, -100.5},
			{0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 7, -7},
			{1e-5, -1e-5}, {7e-5, 1e-5}, {1e-6, -3e-7}, {6e-8, 1.2e-7, -6e-8},
			{1e-30, 5e-31, -2e-31}, {1e-38, -5e-39}, {1e-44, -1e-45}, {math.SmallestNonzeroFloat32},
			{m}, {-m}, {m, -m}, {m, -m / 2}, {m / 2, -m}, {m, -m / 100}, {m, m / 2, 0}, {-m, 1},
			{m, -m / 1000, m / 3}, {m / 1000, -m},
		} {
			checkBlock(t, c, round(c, x))
		}
	}
}

// All float16 magnitudes, alone and beside a smaller one of the other sign.
func TestFloat16Blocks(t *testing.T) {
	for c := range codecs {
		if c.Type != dtype.Float16 {
			continue
		}
		for h := uint16(0); h < 0x7c00; h += 1 {
			v := float16.Frombits(h).Float32()
			checkBlock(t, c, []float32{v, dtype.RoundFloat16(-v / 3)})
			checkBlock(t, c, []float32{-v, dtype.RoundFloat16(-v / 3)})
		}
	}
}

// Every exponent of float32, with mantissas of many kinds.
func TestFloat32Blocks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for c := range codecs {
		if c.Type == dtype.Float16 {
			continue
		}
		for e := range uint32(255) {
			for range 4 {
				top := math.Float32frombits(e<<23 | r.Uint32()>>9)
				x := []float32{top, -top * r.Float32(), top * r.Float32(), -top}
				x = round(c, x[:1+r.IntN(4)])
				if !slices.ContainsFunc(x, func(v float32) bool { return !kernels.IsFinite(v) }) {
					checkBlock(t, c, x)
				}
			}
		}
	}
}

func TestSmallBlocksSurvive(t *testing.T) {
	for _, typ := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		c := Codec{Bits: 4, Signed: true, Type: typ}
		x := round(c, []float32{7e-6, -3.5e-6, 1e-6, 0})
		_, _, q, _ := encode(c, x)
		if !bytes.Equal(q, []byte{7, 0xfc, 1, 0}) && !bytes.Equal(q, []byte{7, 0xfd, 1, 0}) {
			t.Errorf("%v: %v has codes % x", c, x, q)
		}
	}
}

func TestNonFiniteIsReported(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for c := range codecs {
		for _, bad := range []float32{inf, -inf, nan, -nan} {
			for at := range 6 {
				x := []float32{1, -2, 3, -4, 5, -6}
				x[at] = bad
				lo, hi := make([]float32, 3), make([]float32, 3)
				scale, zero := make([]float32, 3), make([]byte, 3)
				c.ObserveColumns(lo, hi, x)
				if c.Scales(scale, zero, lo, hi) {
					t.Errorf("%v: %v at %d in columns not reported", c, bad, at)
				}
				clear(lo)
				clear(hi)
				c.ObserveBlocks(lo, hi, x, 6, 2)
				if c.Scales(scale, zero, lo, hi) {
					t.Errorf("%v: %v at %d in a row not reported", c, bad, at)
				}
			}
		}
	}
}

// Columns, rows and their pieces have the codes of single blocks.
func TestLayouts(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for c := range codecs {
		for range 10 {
			k, n, block := 1+r.IntN(40), 1+r.IntN(9), 1+r.IntN(20)
			blocks := (k + block - 1) / block
			columns := make([]float32, k*n) // [k, n]
			rows := make([]float32, k*n)    // [n, k]
			for i := range columns {
				v := c.Type.Round(float32(r.NormFloat64() + float64(r.IntN(3)-1)))
				columns[i] = v
				rows[i%n*k+i/n] = v
			}

			// Each block of rows of columns, in two pieces.
			var scaleC []float32
			var zeroC, qC []byte
			var yC []float32
			for b := range blocks {
				part := columns[b*block*n : min((b+1)*block, k)*n]
				lo, hi := make([]float32, n), make([]float32, n)
				scale, zero := make([]float32, n), make([]byte, n)
				cut := r.IntN(len(part)/n+1) * n
				c.ObserveColumns(lo, hi, part[:cut])
				c.ObserveColumns(lo, hi, part[cut:])
				c.Scales(scale, zero, lo, hi)
				q, y := make([]byte, len(part)), make([]float32, len(part))
				c.EncodeColumns(q[:cut], part[:cut], scale, zero)
				c.EncodeColumns(q[cut:], part[cut:], scale, zero)
				c.DecodeColumns(y, q, scale, zero)
				scaleC, zeroC, qC, yC = append(scaleC, scale...), append(zeroC, zero...), append(qC, q...), append(yC, y...)
			}

			// All rows at once.
			lo, hi := make([]float32, n*blocks), make([]float32, n*blocks)
			scaleR, zeroR := make([]float32, n*blocks), make([]byte, n*blocks)
			qR, yR := make([]byte, n*k), make([]float32, n*k)
			c.ObserveBlocks(lo, hi, rows, k, block)
			c.Scales(scaleR, zeroR, lo, hi)
			c.EncodeBlocks(qR, rows, scaleR, zeroR, k, block)
			c.DecodeBlocks(yR, qR, scaleR, zeroR, k, block)

			// Their ranges again, each row in pieces that no block's end lies within.
			lo2, hi2 := make([]float32, n*blocks), make([]float32, n*blocks)
			for row := range n {
				for at := 0; at < k; {
					length := 1 + r.IntN(min(k-at, block-at%block))
					b := row*blocks + at/block
					c.ObserveBlocks(lo2[b:], hi2[b:], rows[row*k+at:][:length], length, block)
					at += length
				}
			}
			if !slices.Equal(lo, lo2) || !slices.Equal(hi, hi2) {
				t.Fatalf("%v: [%d, %d] in blocks of %d: ranges of pieces differ", c, n, k, block)
			}

			for i := range n * blocks {
				b, col := i/n, i%n
				j := col*blocks + b
				if scaleC[i] != scaleR[j] || zeroC[i] != zeroR[j] {
					t.Fatalf("%v: [%d, %d] in blocks of %d: block %d of column %d differs from that of row", c, k, n, block, b, col)
				}
			}
			for i := range columns {
				j := i%n*k + i/n
				if qC[i] != qR[j] || yC[i] != yR[j] {
					t.Fatalf("%v: [%d, %d] in blocks of %d: column's code %d is %d, row's %d", c, k, n, block, i, qC[i], qR[j])
				}
			}
			for b := range blocks {
				x := rows[b*block : min((b+1)*block, k)]
				checkBlock(t, c, x)
				s, z, q, _ := encode(c, x)
				if s != scaleR[b] || z != zeroR[b] || !bytes.Equal(q, qR[b*block:][:len(x)]) {
					t.Fatalf("%v: block %d of the first row of [%d, %d] differs from itself alone", c, b, n, k)
				}
			}
		}
	}
}

func TestUnfitSlicesPanic(t *testing.T) {
	c := Codec{Bits: 4, Signed: true}
	for name, f := range map[string]func(){
		"columns":    func() { c.ObserveColumns(nil, make([]float32, 3), make([]float32, 4)) },
		"no columns": func() { c.EncodeColumns(make([]byte, 4), make([]float32, 4), nil, nil) },
		"block 0":    func() { c.ObserveBlocks(nil, make([]float32, 4), make([]float32, 4), 4, 0) },
		"rows":       func() { c.EncodeBlocks(make([]byte, 4), make([]float32, 4), make([]float32, 4), nil, 3, 2) },
		"bits":       func() { Pack(make([]byte, 4), make([]byte, 4), 3) },
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

func TestValidate(t *testing.T) {
	for c := range codecs {
		if err := c.Validate(); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	for _, c := range []Codec{
		{},
		{Bits: 3, Type: dtype.Float32},
		{Bits: 16, Type: dtype.Float32},
		{Bits: 4, Type: dtype.Float64},
		{Bits: 4, Type: dtype.Int8},
	} {
		if c.Validate() == nil {
			t.Errorf("%v: no error", c)
		}
	}
}

func TestPackedLen(t *testing.T) {
	for _, c := range []struct{ n, bits, want int }{
		{0, 4, 0}, {1, 4, 1}, {2, 4, 1}, {3, 4, 2}, {1, 2, 1}, {4, 2, 1}, {5, 2, 2}, {7, 8, 7},
	} {
		if got := PackedLen(c.n, c.bits); got != c.want {
			t.Errorf("%d codes of %d bits take %d bytes, want %d", c.n, c.bits, got, c.want)
		}
	}
}

func TestPackIsUndone(t *testing.T) {
	for _, bits := range []int{2, 4, 8} {
		for _, signed := range []bool{false, true} {
			c := Codec{Bits: bits, Signed: signed}
			lo, hi := c.limits()
			var q []byte // all codes, an odd number of them
			for v := lo; v <= hi; v++ {
				q = append(q, byte(v))
			}
			q = append(q, byte(lo))
			packed, back := make([]byte, PackedLen(len(q), bits)), make([]byte, len(q))
			Pack(packed, q, bits)
			Unpack(back, packed, bits, signed)
			if !bytes.Equal(back, q) {
				t.Errorf("%d bits, signed %t: % x became % x", bits, signed, q, back)
			}
		}
	}
}

func FuzzBlock(f *testing.F) {
	f.Add(uint8(0), []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0})
	f.Add(uint8(19), []byte{0xff, 0xff, 0x7f, 0x7f, 0, 0, 0, 0x80, 0xff, 0xff, 0x7f, 0xff})
	f.Fuzz(func(t *testing.T, which uint8, raw []byte) {
		all := slices.Collect(codecs)
		c := all[int(which)%len(all)]
		w, err := quantutil.FromBytes(dtype.Float32, raw[:len(raw)&^3], len(raw)/4)
		if err != nil {
			t.Fatal(err)
		}
		x := round(c, w.Float32s())
		x = slices.DeleteFunc(x, func(v float32) bool { return !kernels.IsFinite(v) })
		if len(x) > 0 {
			checkBlock(t, c, x)
		}
	})
}
