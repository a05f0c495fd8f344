package ggml

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
)

// builtin are the encodings of this package, without that of an example.
var builtin = All()

// weights returns n numbers as weights are, of all encodings' kinds of blocks: most
// normal, some blocks with an outlier, some of one sign, some of zeros.
func weights(n int) []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64()) * 0.05
		switch i / 256 % 8 {
		case 5:
			x[i] = max(x[i], -x[i])
		case 6:
			x[i] = 0
		}
	}
	for i := 0; i < n; i += 1000 {
		x[i] *= 20
	}
	return x
}

// importances returns n numbers that are not negative.
func importances(n int) []float32 {
	r := rand.New(rand.NewPCG(3, 4))
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(r.ExpFloat64())
	}
	return w
}

func TestErrorIsSmall(t *testing.T) {
	const columns = 1024
	x := weights(4 * columns)
	y := make([]float32, len(x))
	for _, e := range builtin {
		for _, importance := range [][]float32{nil, importances(columns)} {
			size, err := e.RowSize(columns)
			if err != nil {
				t.Fatal(err)
			}
			packed := make([]byte, 4*size)
			if err := e.Quantize(packed, x, columns, importance, 1); err != nil {
				t.Fatal(err)
			}
			if err := e.Dequantize(y, packed, columns, 1); err != nil {
				t.Fatal(err)
			}
			var noise, signal float64
			for i, v := range x {
				noise += math.Pow(float64(y[i]-v), 2)
				signal += math.Pow(float64(v), 2)
			}
			// A bit less makes four times the error; the outliers cost two.
			limit := max(math.Pow(4, 2-e.BitsPerWeight()), 4e-6) // the latter for BF16
			if noise > limit*signal {
				t.Errorf("%s, importance %t: relative squared error %.2g, want at most %.2g", e, importance != nil, noise/signal, limit)
			}
		}
	}
}

func TestWorkersDoNotMatter(t *testing.T) {
	const columns, rows = 768, 7
	x, importance := weights(rows*columns), importances(columns)
	for _, e := range builtin {
		size, err := e.RowSize(columns)
		if err != nil {
			t.Fatal(err)
		}
		want, back := make([]byte, rows*size), make([]float32, len(x))
		if err := e.Quantize(want, x, columns, importance, 1); err != nil {
			t.Fatal(err)
		}
		if err := e.Dequantize(back, want, columns, 1); err != nil {
			t.Fatal(err)
		}
		for _, workers := range []int{0, 2, 3, 50} {
			got, y := make([]byte, len(want)), make([]float32, len(x))
			if err := e.Quantize(got, x, columns, importance, workers); err != nil {
				t.Fatal(err)
			}
			if err := e.Dequantize(y, got, columns, workers); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) || !slices.Equal(y, back) {
				t.Errorf("%s: %d workers give other results", e, workers)
			}
		}
	}
}

func TestPackedShape(t *testing.T) {
	for _, c := range []struct {
		e             *Encoding
		shape, packed []int
	}{
		{Q4_0, []int{3, 64}, []int{3, 36}},
		{Q4_K, []int{256}, []int{144}},
		{Q5_K, []int{2, 5, 512}, []int{2, 5, 352}},
		{Q6_K, []int{0, 256}, []int{0, 210}},
		{Q6_K, []int{7, 0}, []int{7, 0}},
		{F16, []int{7, 3}, []int{7, 6}},
	} {
		packed, err := c.e.PackedShape(c.shape)
		if err != nil || !slices.Equal(packed, c.packed) {
			t.Errorf("%s: PackedShape(%v) = %v, %v; want %v", c.e, c.shape, packed, err, c.packed)
		}
		shape, err := c.e.Shape(c.packed)
		if err != nil || !slices.Equal(shape, c.shape) {
			t.Errorf("%s: Shape(%v) = %v, %v; want %v", c.e, c.packed, shape, err, c.shape)
		}
	}
	for _, shape := range [][]int{nil, {100}, {256, 128}, {-256}, {math.MaxInt / 256 * 256}} {
		if packed, err := Q8_0.PackedShape(shape); err == nil && !slices.Equal(shape, []int{256, 128}) {
			t.Errorf("Q8_0: PackedShape(%v) = %v, want an error", shape, packed)
		}
		if packed, err := Q4_K.PackedShape(shape); err == nil && !slices.Equal(shape, []int{math.MaxInt / 256 * 256}) {
			t.Errorf("Q4_K: PackedShape(%v) = %v, want an error", shape, packed)
		}
		if shape, err := Q6_K.Shape(shape); err == nil {
			t.Errorf("Q6_K: Shape(%v), want an error", shape)
		}
	}
}

func TestBadInput(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	row := func(v float32) []float32 { return append(weights(255), v) }
	for name, c := range map[string]struct {
		dst           int
		x, importance []float32
		columns       int
		want          string
	}{
		"not blocks":       {18, weights(40), nil, 40, "whole blocks of 32"},
		"not rows":         {36, weights(96), nil, 64, "not rows of 64"},
		"no columns":       {36, weights(64), nil, 0, "not rows of 0"},
		"negative columns": {36, weights(64), nil, -32, "whole blocks"},
		"short":            {17, weights(32), nil, 32, "17 bytes"},
		"long":             {36, weights(32), nil, 32, "36 bytes"},
		"NaN":              {144, row(nan), nil, 256, "row 0"},
		"infinity":         {144, row(-inf), nil, 256, "row 0"},
		"importances":      {18, weights(32), weights(64), 32, "64 columns"},
		"NaN weight":       {144, weights(256), append(importances(255), nan), 256, "column 255"},
		"negative weight":  {144, weights(256), append(importances(255), -1), 256, "column 255"},
	} {
		err := Q4_0.Quantize(make([]byte, c.dst), c.x, c.columns, c.importance, 2)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
	if err := Q4_0.Dequantize(make([]float32, 64), make([]byte, 18), 64, 1); err == nil {
		t.Error("18 bytes decode to 64 elements")
	}
	if err := Q4_0.Quantize(nil, nil, 0, nil, 4); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

// Any bytes decode to something, and any finite floats have bytes.
func FuzzEncodings(f *testing.F) {
	f.Add(uint8(0), []byte("some bytes"), false)
	f.Add(uint8(9), bytes.Repeat([]byte{0, 0, 128, 63, 1, 2, 3, 255, 255, 255, 127, 127}, 50), true)
	f.Fuzz(func(t *testing.T, which uint8, data []byte, weighted bool) {
		e := builtin[int(which)%len(builtin)]
		src := make([]byte, e.Bytes)
		copy(src, data)
		e.Decode(make([]float32, e.Elements), src)

		x := make([]float32, e.Elements)
		raw := make([]byte, 4*len(x))
		copy(raw, data)
		dtype.Float32.Decode(x, raw)
		var importance []float32
		if weighted {
			importance = importances(len(x))
		}
		one, two := make([]byte, e.Bytes), make([]byte, 2*e.Bytes)
		err := e.Quantize(one, x, len(x), importance, 1)
		if err != nil {
			return
		}
		if err := e.Quantize(two, slices.Concat(x, x), len(x), importance, 2); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(two, slices.Concat(one, one)) {
			t.Errorf("%s: a row has other bytes beside another", e)
		}
	})
}

func BenchmarkQuantize(b *testing.B) {
	const columns, rows = 4096, 16
	x, importance := weights(rows*columns), importances(columns)
	for _, e := range builtin {
		size, err := e.RowSize(columns)
		if err != nil {
			b.Fatal(err)
		}
		dst := make([]byte, rows*size)
		for _, weighted := range []bool{false, true} {
			w := importance
			if !weighted {
				w = nil
			}
			b.Run(fmt.Sprintf("encoding=%s/importance=%t", e, weighted), func(b *testing.B) {
				b.SetBytes(int64(4 * len(x)))
				b.ReportAllocs()
				for b.Loop() {
					if err := e.Quantize(dst, x, columns, w, 1); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkDequantize(b *testing.B) {
	const columns, rows = 4096, 16
	x := weights(rows * columns)
	for _, e := range builtin {
		size, err := e.RowSize(columns)
		if err != nil {
			b.Fatal(err)
		}
		src := make([]byte, rows*size)
		if err := e.Quantize(src, x, columns, nil, 1); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("encoding=%s", e), func(b *testing.B) {
			b.SetBytes(int64(4 * len(x)))
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Dequantize(x, src, columns, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What the parts of blocks stand for is what the blocks stand for.
func TestFormsStandForTheSame(t *testing.T) {
	const columns, rows = 1024, 4
	x := weights(rows * columns)
	for _, e := range builtin {
		if e.Form == nil {
			continue
		}
		f := e.Form
		size, err := e.RowSize(columns)
		if err != nil {
			t.Fatal(err)
		}
		packed, want := make([]byte, rows*size), make([]float32, len(x))
		if err := e.Quantize(packed, x, columns, nil, 1); err != nil {
			t.Fatal(err)
		}
		if err := e.Dequantize(want, packed, columns, 1); err != nil {
			t.Fatal(err)
		}
		blocks, parts := len(x)/e.Elements, len(x)/f.Part
		p := Parts{
			make([]byte, len(x)), make([]float32, blocks), make([]float32, blocks), make([]byte, parts), make([]byte, parts),
		}
		f.Split(p, packed)
		joined := make([]byte, len(packed))
		if f.Join(joined, p); !bytes.Equal(joined, packed) {
			t.Errorf("%s: joined parts are not the blocks", e)
		}
		number := func(code byte) float32 {
			if f.Signed {
				return float32(int8(code))
			}
			return float32(code)
		}
		for i, q := range p.Codes {
			b := i / e.Elements
			scale, least := p.Scales[b], p.Mins[b]
			if f.Nested {
				scale *= number(p.PartScales[i/f.Part])
				least *= float32(p.PartMins[i/f.Part])
			}
			value := number(q)
			if low := -1 << (f.Bits - 1); f.Signed && (int8(q) < int8(low) || int8(q) > int8(-1-low)) || !f.Signed && q >= 1<<f.Bits {
				t.Fatalf("%s: code %d has more than %d bits", e, q, f.Bits)
			}
			if f.Values != nil {
				value = f.Values[q]
			}
			got := scale * value
			if f.Mins {
				got -= least
			}
			if got != want[i] {
				t.Fatalf("%s: element %d is %v, by its parts %v", e, i, want[i], got)
			}
		}
	}
}

// Q8_0 rounds as roundf does: a half goes away from 0.
func TestTiesQ8_0(t *testing.T) {
	e, _ := Lookup("Q8_0")
	x := make([]float32, e.Elements)
	for i := range x {
		x[i] = float32(i) - 15.5
	}
	x[0] = 127 // the scale is 1
	packed := make([]byte, e.Bytes)
	if err := e.Quantize(packed, x, len(x), nil, 1); err != nil {
		t.Fatal(err)
	}
	for i, v := range x {
		if want := math.Round(float64(v)); int8(packed[2+i]) != int8(want) {
			t.Errorf("%v became %d, want %v", v, int8(packed[2+i]), want)
		}
	}
}
