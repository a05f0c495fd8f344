package blocks_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/formats/fp8"
	"onnxquant/formats/mx"
	"onnxquant/formats/qlora"
	"onnxquant/int4"
	"onnxquant/internal/quantize"
	"onnxquant/nvfp4"
)

// codec is what the converter needs of a format, and encoding without errors being measured.
type codec interface {
	quantize.Codec
	EncodeColumns(q []byte, x, scale []float32, zero []byte)
	EncodeBlocks(q []byte, x, scale []float32, zero []byte, k, block int)
}

var weightTypes = []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16}

// codecs yields every format of weights of a type, whose largest magnitude is amax,
// by name, with the greatest error that it makes in units of that magnitude.
func codecs(typ dtype.DType, amax float32) func(yield func(codec, float64) bool) {
	tensorScale, err := nvfp4.TensorScale(amax)
	if err != nil {
		panic(err)
	}
	return func(yield func(codec, float64) bool) {
		for _, bits := range []int{2, 4, 8} {
			for _, signed := range []bool{false, true} {
				for _, zero := range []bool{false, true} {
					c := int4.Codec{Bits: bits, Signed: signed, ZeroPoint: zero, Type: typ}
					if !yield(c, 1.02/float64(int(1)<<(bits-1)-1)) {
						return
					}
				}
			}
		}
		for _, f := range []struct {
			format fp8.Format
			off    float64
		}{{fp8.E4M3FN, 0x1p-4}, {fp8.E5M2, 0x1p-3}, {fp8.E4M3FNUZ, 0x1p-4}, {fp8.E5M2FNUZ, 0x1p-3}} {
			if !yield(fp8.Codec{Format: f.format, Type: typ}, f.off) {
				return
			}
		}
		for _, rule := range []mx.Rule{mx.Default, mx.OCP, mx.Reference} {
			for _, f := range []struct {
				format mx.Format
				off    float64
			}{{mx.MXFP4, 0.26}, {mx.MXFP8E4M3, 0.126}, {mx.MXFP8E5M2, 0.126}} {
				if !yield(mx.Codec{Format: f.format, Rule: rule, Type: typ}, f.off) {
					return
				}
			}
		}
		for _, f := range []struct {
			table qlora.Table
			off   float64
		}{{qlora.NF4, 0.16}, {qlora.FP4, 0.17}} {
			if !yield(qlora.Codec{Table: f.table, Type: typ}, f.off) {
				return
			}
		}
		yield(nvfp4.Codec{TensorScale: tensorScale, Type: typ}, 0.23)
	}
}

// weights are what a codec makes of one weight.
type weights struct {
	scale []float32
	zero  []byte
	q     []byte
	y     []float32
}

// byRows quantizes rows of k elements.
func byRows(c codec, x []float32, k, block int) (weights, bool) {
	n := 0
	if len(x) > 0 {
		n = len(x) / k * ((k-1)/block + 1)
	}
	w := weights{make([]float32, n), make([]byte, n), make([]byte, len(x)), make([]float32, len(x))}
	lo, hi := make([]float32, n), make([]float32, n)
	c.ObserveBlocks(lo, hi, x, k, block)
	if !c.Scales(w.scale, w.zero, lo, hi) {
		return w, false
	}
	c.EncodeBlocks(w.q, x, w.scale, w.zero, k, block)
	c.DecodeBlocks(w.y, w.q, w.scale, w.zero, k, block)
	return w, true
}

// byColumns quantizes one slab: rows of so many columns, with a block in each.
func byColumns(c codec, x []float32, columns int) (weights, bool) {
	w := weights{make([]float32, columns), make([]byte, columns), make([]byte, len(x)), make([]float32, len(x))}
	lo, hi := make([]float32, columns), make([]float32, columns)
	cut := len(x) / columns / 2 * columns // the slab comes in two pieces
	c.ObserveColumns(lo, hi, x[:cut])
	c.ObserveColumns(lo, hi, x[cut:])
	if !c.Scales(w.scale, w.zero, lo, hi) {
		return w, false
	}
	c.EncodeColumns(w.q[:cut], x[:cut], w.scale, w.zero)
	c.EncodeColumns(w.q[cut:], x[cut:], w.scale, w.zero)
	c.DecodeColumns(w.y, w.q, w.scale, w.zero)
	return w, true
}

// Every format treats rows, columns and pieces alike, and errs within its bounds.
func TestCodecs(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for _, typ := range append(weightTypes, 0) { // 0 stands for float32
		for range 10 {
			k, n, block := 1+r.IntN(50), 1+r.IntN(9), 1+r.IntN(40)
			rows := make([]float32, n*k)
			var amax float32
			for i := range rows {
				rows[i] = typ.Round(float32(r.NormFloat64()) * 0.1)
				if r.IntN(5) == 0 {
					rows[i] = 0
				}
				amax = max(amax, rows[i], -rows[i])
			}
			for c, bound := range codecs(typ, amax) {
				if err := c.Validate(); err != nil {
					t.Fatal(err)
				}
				name := fmt.Sprintf("%T%+v", c, c)
				w, ok := byRows(c, rows, k, block)
				if !ok {
					t.Fatalf("%s: finite weights reported", name)
				}
				blocks := (k-1)/block + 1
				for b := range blocks {
					first, last := b*block, min((b+1)*block, k)
					slab := make([]float32, 0, (last-first)*n)
					for j := first; j < last; j++ {
						for i := range n {
							slab = append(slab, rows[i*k+j])
						}
					}
					v, _ := byColumns(c, slab, n)
					for i := range n {
						at := i*blocks + b
						if v.scale[i] != w.scale[at] || c.HasZeroPoints() && v.zero[i] != w.zero[at] {
							t.Fatalf("%s: block %d of column %d differs from that of a row", name, b, i)
						}
						piece := rows[i*k+first : i*k+last]
						top := max(slices.Max(piece), -slices.Min(piece))
						for j := range last - first {
							p, s := i*k+first+j, j*n+i
							if v.q[s] != w.q[p] || math.Float32bits(v.y[s]) != math.Float32bits(w.y[p]) {
								t.Fatalf("%s: element %d of column %d has code %#x, in a row %#x", name, first+j, i, v.q[s], w.q[p])
							}
							if e := math.Abs(float64(w.y[p]) - float64(rows[p])); e > bound*float64(top) {
								t.Errorf("%s: %v became %v beside %v", name, rows[p], w.y[p], top)
							}
							if typ.Round(w.y[p]) != w.y[p] {
								t.Errorf("%s: %v is not of the type", name, w.y[p])
							}
						}
					}
				}
			}
		}
	}
}

func TestCodecsReportNonFinite(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for c := range codecs(dtype.Float32, 6) {
		for _, bad := range []float32{inf, -inf, nan, -nan} {
			for at := range 6 {
				x := []float32{1, -2, 3, -4, 5, -6}
				x[at] = bad
				if _, ok := byRows(c, x, 6, 2); ok {
					t.Errorf("%T%+v: %v at %d in a row not reported", c, c, bad, at)
				}
				if _, ok := byColumns(c, x, 3); ok {
					t.Errorf("%T%+v: %v at %d in a column not reported", c, c, bad, at)
				}
			}
		}
	}
}

// Zeros stay zeros, and the largest and smallest weights stand for finite numbers.
func TestCodecsExtremes(t *testing.T) {
	for i, typ := range weightTypes {
		largest := []float32{math.MaxFloat32, 65504, 0x1.fep127}[i]
		least := []float32{math.SmallestNonzeroFloat32, 0x1p-24, 0x1p-133}[i]
		for _, x := range [][]float32{
			{0, 0, 0}, {largest, -largest, 0}, {-largest, largest / 2, 0}, {least, -least, 0}, {largest, least, 0},
		} {
			for c := range codecs(typ, max(x[0], -x[0])) {
				w, ok := byRows(c, x, 3, 3)
				if !ok {
					t.Errorf("%T%+v: %v reported", c, c, x)
				}
				for i, y := range w.y {
					if math.IsInf(float64(y), 0) || y != y || x[i] == 0 && y != 0 {
						t.Errorf("%T%+v: %v became %v", c, c, x, w.y)
						break
					}
				}
			}
		}
	}
}

func TestCodecsPanicOnUnfitSlices(t *testing.T) {
	x, s, q := make([]float32, 4), make([]float32, 4), make([]byte, 4)
	for c := range codecs(dtype.Float32, 1) {
		for name, f := range map[string]func(){
			"columns":    func() { c.ObserveColumns(s[:3], s[:3], x) },
			"no columns": func() { c.EncodeColumns(q, x, nil, nil) },
			"block 0":    func() { c.ObserveBlocks(s, s, x, 4, 0) },
			"rows":       func() { c.EncodeBlocks(q, x, s, q, 3, 2) },
			"codes":      func() { c.DecodeColumns(x, q, s[:3], q) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%T%+v: %s: no panic", c, c, name)
					}
				}()
				f()
			}()
		}
	}
}

// FuzzCodecs decodes any codes with any scales, rows and columns alike. Encoded once
// more, the numbers are the same.
func FuzzCodecs(f *testing.F) {
	all := slices.Collect(func(yield func(codec) bool) {
		for _, typ := range weightTypes {
			for c := range codecs(typ, 1) {
				if !yield(c) {
					return
				}
			}
		}
	})
	for i := range all {
		f.Add(uint8(i), uint32(0x3f800000), uint8(0), []byte{0, 1, 2, 7, 8, 9, 15, 127, 128, 129, 254, 255})
	}
	f.Add(uint8(9), uint32(0x00000001), uint8(255), []byte{0x80})
	f.Add(uint8(20), uint32(0x7fc00000), uint8(3), []byte{0, 0x80})
	f.Fuzz(func(t *testing.T, which uint8, scaleBits uint32, zero uint8, q []byte) {
		c := all[int(which)%len(all)]
		bits, signed := codeBits(c)
		for i := range q {
			q[i] = codeOf(q[i], bits, signed)
		}
		zero = codeOf(zero, bits, signed)
		n := len(q)
		if n == 0 {
			return
		}
		s := math.Float32frombits(scaleBits)
		row, column, again := make([]float32, n), make([]float32, n), make([]float32, n)
		c.DecodeBlocks(row, q, []float32{s}, []byte{zero}, n, n)
		c.DecodeColumns(column, q, slices.Repeat([]float32{s}, n), slices.Repeat([]byte{zero}, n))
		for i := range row {
			bothNaN := row[i] != row[i] && column[i] != column[i] // of whatever bits
			if math.Float32bits(row[i]) != math.Float32bits(column[i]) && !bothNaN {
				t.Fatalf("%T%+v: scale %v, zero point %d: code %#x is %v in a row, %v in a column", c, c, s, zero, q[i], row[i], column[i])
			}
		}
		if !(s > 0x1p-20 && s < 0x1p20) {
			return // scales that no weight has; nothing more is promised
		}
		for i, x := range row {
			if x-x != 0 {
				row[i] = 0 // NaN and infinity have codes in some formats
			}
		}
		codes := make([]byte, n)
		c.EncodeBlocks(codes, row, []float32{s}, []byte{zero}, n, n)
		c.DecodeBlocks(again, codes, []float32{s}, []byte{zero}, n, n)
		for i := range row {
			if row[i] != again[i] {
				t.Fatalf("%T%+v: scale %v, zero point %d: %v became %v", c, c, s, zero, row[i], again[i])
			}
		}
	})
}

func codeBits(c codec) (bits int, signed bool) {
	switch c := c.(type) {
	case int4.Codec:
		return c.Bits, c.Signed
	case fp8.Codec:
		return 8, false
	case mx.Codec:
		if c.Format != mx.MXFP4 {
			return 8, false
		}
	}
	return 4, false
}

// codeOf makes a byte a code, as unpacking does.
func codeOf(b byte, bits int, signed bool) byte {
	if signed {
		return byte(int8(b<<(8-bits)) >> (8 - bits))
	}
	return b & (1<<bits - 1)
}
