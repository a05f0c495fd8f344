package int4

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/blocks"
)

// edgeBlocks are blocks at the ends of what a type can represent.
func edgeBlocks(t dtype.DType) [][]float32 {
	blocks := [][]float32{
		make([]float32, 32), {0}, {-3}, {0.3, 0.3, 0.3}, {-0.3, -0.3}, {1, -1}, {-8, 7, 0, 1}, {1e-5, -2e-5, 3e-5},
		{65504, -65504, 1}, {1e-7, -1e-7}, {1000, 0.001, -0.001}, {1e-40, -3e-40}, {3e38, -3e38, 1e38}, {3.4e38, 0, 0, -1},
	}
	for _, x := range blocks {
		t.RoundAll(x)
	}
	return slices.DeleteFunc(blocks, func(x []float32) bool { return slices.ContainsFunc(x, isInf) })
}

// fitted returns the error of a block's decoded codes, having checked that codes and scale are
// possible in the format.
func fitted(t *testing.T, c Codec, f blocks.Fitter, x []float32) (sum float64, scale float32) {
	t.Helper()
	q, y := make([]byte, len(x)), make([]float32, len(x))
	scale, zero := f.Fit(q, x)
	least, greatest := c.limits()
	for _, v := range q {
		n := int32(v)
		if c.Signed {
			n = int32(int8(v))
		}
		if n < least || n > greatest {
			t.Fatalf("%+v: code %d of %v", c, n, x)
		}
	}
	if scale != c.Type.Round(scale) || isInf(scale) || scale != scale {
		t.Errorf("%+v: scale %v of %v", c, scale, x)
	}
	c.DecodeBlocks(y, q, []float32{scale}, []byte{zero}, len(x), len(x))
	for i := range x {
		d := float64(x[i]) - float64(y[i])
		sum += d * d
	}
	return sum, scale
}

// Whatever the block, LeastAngle is no worse than rounding to nearest, and the last block has
// no influence on the next.
func TestLeastAngle(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for c := range codecs {
		for _, positive := range []bool{false, true} {
			var blocks [][]float32
			for range 20 {
				blocks = append(blocks, randomBlock(r, 1+r.IntN(200), c.Type))
			}
			blocks = append(blocks, edgeBlocks(c.Type)...)
			used, ours, theirs := c.LeastAngle(positive), 0.0, 0.0
			for i, x := range blocks {
				got, scale := fitted(t, c, used, x)
				fresh, again := fitted(t, c, c.LeastAngle(positive), x)
				rounded, _ := fitted(t, c, c.Nearest(), x)
				if !(got <= rounded) {
					t.Errorf("%+v: error %v, rounded to nearest %v: %v", c, got, rounded, x)
				}
				if got != fresh || scale != again {
					t.Errorf("%+v: error %v and scale %v, in a new Fitter %v and %v", c, got, scale, fresh, again)
				}
				if positive && scale <= 0 {
					t.Errorf("%+v: scale %v of %v", c, scale, x)
				}
				if i < 20 {
					ours, theirs = ours+got/sumOfSquares(x), theirs+rounded/sumOfSquares(x)
				}
			}
			if c.Bits < 8 && ours > 0.98*theirs {
				t.Errorf("%+v: relative errors of %v, rounded to nearest %v", c, ours, theirs)
			}
		}
	}
}

func sumOfSquares(x []float32) (sum float64) {
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

// Nearest is what Scales and QuantizeBlocks do, and the rules of ONNX Runtime have an answer to
// every block.
func TestFittersOfONNXRuntime(t *testing.T) {
	for c := range codecs {
		for _, x := range edgeBlocks(c.Type) {
			fitted(t, c, c.SignedExtreme(), x)
			if c.ZeroPoint {
				fitted(t, c, c.KQuant(32), x)
			}
		}
	}
	c := Codec{Bits: 4, Signed: true}
	q := make([]byte, 3)
	if scale, _ := c.SignedExtreme().Fit(q, []float32{-1, 4, 0.75}); scale != -0.5 || !slices.Equal(q, []byte{2, 0xf8, 0xff}) {
		t.Errorf("scale %v, codes %v", scale, q)
	}
}

// Blocks in columns are fitted as they are one by one, also those that the rule has no answer for.
func TestSignedExtremeColumns(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for c := range codecs {
		const rows = 32
		blocks := edgeBlocks(c.Type)
		for range 20 {
			blocks = append(blocks, randomBlock(r, rows, c.Type))
		}
		n := len(blocks)
		x, q := make([]float32, rows*n), make([]byte, rows*n)
		for i := range blocks {
			for at := range rows { // short blocks are repeated
				x[at*n+i] = blocks[i][at%len(blocks[i])]
			}
		}
		x[3*n] = float32(math.Copysign(0, -1)) // in a column of zeros
		scale, zero := make([]float32, n), make([]byte, n)
		f := c.SignedExtreme()
		f.FitColumns(q, x, scale, zero)
		column, want, got := make([]float32, rows), make([]byte, rows), make([]byte, rows)
		for i := range n {
			for at := range rows {
				column[at], got[at] = x[at*n+i], q[at*n+i]
			}
			s, z := f.Fit(want, column)
			if math.Float32bits(s) != math.Float32bits(scale[i]) || z != zero[i] || !slices.Equal(got, want) {
				t.Errorf("%+v: column %v has scale %v, zero point %d, codes %v, alone %v, %d, %v", c, column, scale[i], zero[i], got, s, z, want)
			}
		}
	}
}

func BenchmarkFit(b *testing.B) {
	x := randomBlock(rand.New(rand.NewPCG(1, 2)), 1<<16, dtype.Float32)
	q := make([]byte, 32)
	for _, zp := range []bool{false, true} {
		c := Codec{Bits: 4, Signed: !zp, ZeroPoint: zp}
		for name, f := range map[string]blocks.Fitter{"nearest": c.Nearest(), "rtn-ort": c.SignedExtreme(), "k_quant": c.KQuant(32), "mse": c.LeastAngle(false)} {
			if name == "k_quant" && !zp {
				continue
			}
			b.Run(name+map[bool]string{false: "", true: "/zero"}[zp], func(b *testing.B) {
				b.SetBytes(int64(4 * len(x)))
				for b.Loop() {
					for at := 0; at < len(x); at += 32 {
						f.Fit(q, x[at:at+32])
					}
				}
			})
		}
	}
}

// A float zero point costs no more than one that is rounded, and every block has an answer.
func TestHalfQuadratic(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for c := range codecs {
		if !c.ZeroPoint {
			continue
		}
		rounded, float, nearest := 0.0, 0.0, 0.0
		for range 20 {
			x := randomBlock(r, 32, c.Type)
			lost, _ := fitted(t, c, c.HalfQuadratic(32, 10, true), x)
			plain, _ := fitted(t, c, c.Nearest(), x)
			rounded, nearest = rounded+lost/sumOfSquares(x), nearest+plain/sumOfSquares(x)
			float += fittedFloat(t, c, x) / sumOfSquares(x)
		}
		if c.Bits < 8 && float > rounded || rounded > 1.1*nearest {
			t.Errorf("%+v: errors of %v with float zero points, %v with rounded ones, %v rounded to nearest", c, float, rounded, nearest)
		}
		for _, x := range edgeBlocks(c.Type) {
			fitted(t, c, c.HalfQuadratic(32, 3, true), x)
			fittedFloat(t, c, x)
		}
	}
}

// fittedFloat is fitted for a float zero point.
func fittedFloat(t *testing.T, c Codec, x []float32) (sum float64) {
	t.Helper()
	q := make([]byte, len(x))
	scale, zero := c.HalfQuadratic(32, 10, false).FitFloat(q, x)
	if scale != c.Type.Round(scale) || isInf(scale) || scale != scale || zero != c.Type.Round(zero) || isInf(zero) || zero != zero {
		t.Errorf("%+v: scale %v and zero point %v of %v", c, scale, zero, x)
	}
	least, _ := c.limits()
	for i, v := range x {
		n := int32(q[i])
		if c.Signed {
			n = int32(int8(q[i]))
		}
		d := float64(v) - (float64(n-least)-float64(zero))*float64(scale)
		sum += d * d
	}
	return sum
}

// A weight needs steps up to the first that does not lessen its error.
func TestHalfQuadraticSteps(t *testing.T) {
	for want, sums := range map[int][MostHalfQuadraticSteps]float64{
		1:                      {1e7},
		4:                      {8, 7, 6, 6, 5},
		3:                      {8, 7, math.NaN()},
		MostHalfQuadraticSteps: {20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1},
	} {
		if got := HalfQuadraticSteps(&sums, 10); got != want {
			t.Errorf("%v: %d steps, want %d", sums, got, want)
		}
	}
}

// Blocks that lie in columns or in rows are fitted as they are one by one.
func TestLeastAngleTogether(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for c := range codecs {
		const rows, n = 40, 37
		blocks := edgeBlocks(c.Type)
		for len(blocks) < n {
			blocks = append(blocks, randomBlock(r, rows, c.Type))
		}
		x, turned := make([]float32, rows*n), make([]float32, rows*n)
		for i := range n {
			for at := range rows { // short blocks are repeated
				x[at*n+i] = blocks[i][at%len(blocks[i])]
				turned[i*rows+at] = x[at*n+i]
			}
		}
		f := c.LeastAngle(false)
		q, scale, zero := make([]byte, len(x)), make([]float32, n), make([]byte, n)
		f.FitColumns(q, x, scale, zero)
		checkAlone(t, c, turned, scale, zero, rows, rows, func(i, at int) byte { return q[at*n+i] })
		for _, block := range []int{rows, 16} { // the second does not divide rows
			perRow := (rows-1)/block + 1
			scale, zero := make([]float32, n*perRow), make([]byte, n*perRow)
			f.FitBlocks(q, turned, scale, zero, rows, block)
			checkAlone(t, c, turned, scale, zero, rows, block, func(i, at int) byte { return q[i/perRow*rows+i%perRow*block+at] })
		}
	}
}

// checkAlone compares scales, zero points and codes of blocks in rows of k elements with those that
// each block has alone.
func checkAlone(t *testing.T, c Codec, x, scale []float32, zero []byte, k, block int, code func(i, at int) byte) {
	t.Helper()
	f, i := c.LeastAngle(false), 0
	for row := 0; row < len(x); row += k {
		for from := 0; from < k; from += block {
			alone := x[row+from : row+min(from+block, k)]
			q := make([]byte, len(alone))
			s, z := f.Fit(q, alone)
			if s != scale[i] || c.ZeroPoint && z != zero[i] {
				t.Fatalf("%+v: %v has scale %v and zero point %d, alone %v and %d", c, alone, scale[i], zero[i], s, z)
			}
			for at, want := range q {
				if got := code(i, at); got != want {
					t.Fatalf("%+v: %v has code %d, alone %d", c, alone, got, want)
				}
			}
			i++
		}
	}
}

// Of a very large block only a part is searched, but no error is above that of rounding to nearest.
func TestLeastAngleOfLargeBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	for _, zeroPoint := range []bool{false, true} {
		c := Codec{Bits: 4, ZeroPoint: zeroPoint}
		x := randomBlock(r, 2*mostRows+5, c.Type)
		got, _ := fitted(t, c, c.LeastAngle(false), x)
		if rounded, _ := fitted(t, c, c.Nearest(), x); got > 0.9*rounded {
			t.Errorf("%+v: error %v, rounded to nearest %v", c, got, rounded)
		}
	}
}

func BenchmarkLeastAngleColumns(b *testing.B) {
	const n = 4096
	x := randomBlock(rand.New(rand.NewPCG(1, 2)), 128*n, dtype.Float32)
	q, scale, zero := make([]byte, len(x)), make([]float32, n), make([]byte, n)
	for _, rows := range []int{32, 128} {
		for _, zp := range []bool{false, true} {
			f := Codec{Bits: 4, Signed: !zp, ZeroPoint: zp}.LeastAngle(false)
			b.Run(fmt.Sprint(rows, zp), func(b *testing.B) {
				b.SetBytes(int64(4 * rows * n))
				for b.Loop() {
					f.FitColumns(q[:rows*n], x[:rows*n], scale, zero)
				}
			})
		}
	}
}
