package kernels

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// fenced returns n elements, with room before them that must not change and an
// end that must not be passed: the page behind is out of bounds, where the
// operating system can do that.
func fenced[T byte | float32](t testing.TB, n int) []T {
	size := int(unsafe.Sizeof(*new(T)))
	const room = 64
	b := fence(t, n*size+room)
	for i := range room {
		b[i] = 0xa5
	}
	t.Cleanup(func() {
		if !bytes.Equal(b[:room], bytes.Repeat([]byte{0xa5}, room)) {
			t.Errorf("what lies before %d elements has changed", n)
		}
	})
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[room])), n)
}

// lengths are those of rows and blocks.
var lengths = func() []int {
	var n []int
	for i := 1; i <= 100; i++ {
		n = append(n, i)
	}
	return append(n, 127, 128, 129, 255, 256, 257, 511, 1000, 1023)
}()

// wild returns floats of any bits, many of them special, not all finite.
func wild(t testing.TB, r *rand.Rand, n int) []float32 {
	x := fenced[float32](t, n)
	copy(x, samples(r, n))
	for range n / 20 {
		x[r.IntN(n)] = []float32{inf, -inf, nan, -nan, math.Float32frombits(0x7f800001)}[r.IntN(5)]
	}
	return x
}

func randomBytes(t testing.TB, r *rand.Rand, n int) []byte {
	b := fenced[byte](t, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// each runs a check in every implementation, in a test of its own for each
// length, for memory to be given back.
func each(t *testing.T, check func(t *testing.T, r *rand.Rand, n int)) {
	for name := range implementations(t) {
		for _, n := range lengths {
			t.Run(name, func(t *testing.T) { check(t, random(uint64(n)), n) })
		}
	}
}

// loops are checks of those that take no options, over n elements, columns or blocks.
var loops = []struct {
	name  string
	check func(t *testing.T, r *rand.Rand, n int)
}{
	{"ranges", checkRanges},
	{"errors", checkErrors},
	{"rounding up", checkRoundUp},
	{"packing", checkPacking},
	{"halves", checkHalves},
	{"recode", checkRecode},
	{"small blocks", checkSmallBlocks},
}

func TestLoopsAreThoseOfPlainGo(t *testing.T) {
	for _, l := range loops {
		t.Run(l.name, func(t *testing.T) { each(t, l.check) })
	}
}

func FuzzLoopsAreThoseOfPlainGo(f *testing.F) {
	for i := range loops {
		f.Add(uint8(i), uint64(i), uint16(16*i))
	}
	f.Fuzz(func(t *testing.T, which uint8, seed uint64, n uint16) {
		for range implementations(t) {
			loops[int(which)%len(loops)].check(t, random(seed), 1+int(n)%600)
		}
	})
}

func checkRanges(t *testing.T, r *rand.Rand, n int) {
	rows := 1 + r.IntN(9)
	x := wild(t, r, rows*n)
	for range 2 { // the second time on top of the first
		wantLo, wantHi, wantMax := make([]float32, n), make([]float32, n), make([]float32, n)
		lo, hi, acc := fenced[float32](t, n), fenced[float32](t, n), fenced[float32](t, n)
		AbsMaxColumns(acc, x)
		absMaxColumnsGo(wantMax, x)
		sameFloats(t, "AbsMaxColumns", acc, wantMax)
		RangeColumns(lo, hi, x)
		rangeColumnsGo(wantLo, wantHi, x)
		sameFloats(t, "RangeColumns", lo, wantLo)
		sameFloats(t, "RangeColumns", hi, wantHi)
	}
	k := n * (1 + r.IntN(3))
	x = wild(t, r, 3*k)
	block := 1 + r.IntN(n+3)
	count := 3 * ((k-1)/block + 1)
	wantLo, wantHi, wantMax := make([]float32, count), make([]float32, count), make([]float32, count)
	lo, hi, acc := fenced[float32](t, count), fenced[float32](t, count), fenced[float32](t, count)
	for i := range count {
		acc[i], lo[i], hi[i] = r.Float32(), -r.Float32(), r.Float32()
	}
	copy(wantMax, acc)
	copy(wantLo, lo)
	copy(wantHi, hi)
	for i, b := range Blocks(len(x), k, block) {
		absMaxBlocksGo(wantMax[i:i+1], x[b.Start:b.End], block)
		rangeBlocksGo(wantLo[i:i+1], wantHi[i:i+1], x[b.Start:b.End], block)
	}
	AbsMaxBlocks(acc, x, k, block)
	RangeBlocks(lo, hi, x, k, block)
	sameFloats(t, "AbsMaxBlocks", acc, wantMax)
	sameFloats(t, "RangeBlocks", lo, wantLo)
	sameFloats(t, "RangeBlocks", hi, wantHi)
}

func TestQuantizingIsThatOfPlainGo(t *testing.T) {
	each(t, func(t *testing.T, r *rand.Rand, n int) {
		for f := range formats {
			checkSameQuantize(t, r, n, 1+r.IntN(4), f)
		}
	})
}

// checkSameQuantize compares rows of n columns, and the same as blocks.
func checkSameQuantize(t *testing.T, r *rand.Rand, n, rows int, f Format) {
	t.Helper()
	x := fenced[float32](t, rows*n)
	copy(x, samples(r, rows*n))
	for _, blocks := range []bool{false, true} {
		length, count := 0, n
		if blocks {
			length = 1 + r.IntN(n)
			count = rows * ((n-1)/length + 1)
		}
		scale := fenced[float32](t, count)
		copy(scale, scalesFor(r, count, f))
		for _, zeros := range []int{1, count} {
			zero := fenced[byte](t, zeros)
			for i := range zero {
				zero[i] = byte(f.Lo + r.Int32N(f.Hi-f.Lo+1))
			}
			q, want := fenced[byte](t, len(x)), make([]byte, len(x))
			sums := ErrorSums{sqErr: [8]float64{1, 2, 3, 4, 5, 6, 7, 8}, sq: [8]float64{9, 8, 7, 6, 5, 4, 3, 2}, maxAbs: 5}
			wantSums := sums
			if blocks {
				QuantizeBlocks(q, x, scale, zero, n, length, f, &sums)
				for i, b := range Blocks(len(x), n, length) {
					quantizeBlocksGo(want[b.Start:b.End], x[b.Start:b.End], scale[i:i+1], zero[min(i, zeros-1):][:1], length, f, &wantSums)
				}
			} else {
				QuantizeColumns(q, x, scale, zero, f, &sums)
				quantizeColumnsGo(want, x, scale, zero, f, &wantSums)
			}
			if !bytes.Equal(q, want) || sums != wantSums {
				t.Fatalf("%v, rows of %d, blocks of %d, %d zero points:\ncodes  % x\nwant   % x\nerrors %v\nwant   %v",
					f, n, length, zeros, q, want, sums, wantSums)
			}
		}
	}
}

func FuzzQuantizingIsThatOfPlainGo(f *testing.F) {
	f.Add(uint64(1), uint16(17), uint8(3), uint8(1))
	f.Add(uint64(2), uint16(300), uint8(1), uint8(9))
	f.Fuzz(func(t *testing.T, seed uint64, n uint16, rows, which uint8) {
		var all []Format
		for format := range formats {
			all = append(all, format)
		}
		for range implementations(t) {
			checkSameQuantize(t, random(seed), 1+int(n)%600, 1+int(rows)%8, all[int(which)%len(all)])
		}
	})
}

func checkErrors(t *testing.T, r *rand.Rand, n int) {
	x, y := fenced[float32](t, n), fenced[float32](t, n)
	copy(x, samples(r, n))
	copy(y, samples(r, n))
	sums := ErrorSums{sqErr: [8]float64{7: 3}, sq: [8]float64{2: 4}}
	want := sums
	sums.Add(x, y)
	want.addGo(x, y)
	if sums != want {
		t.Fatalf("%d elements: %v, want %v", n, sums, want)
	}
}

func checkRoundUp(t *testing.T, r *rand.Rand, n int) {
	rows, least, steps := 1+r.IntN(4), byte(r.Uint32()), []float32{3, 15, 255}[r.IntN(3)]
	x, factor, offset := wild(t, r, rows*n), fenced[float32](t, n), fenced[float32](t, n)
	for i := range n {
		factor[i], offset[i] = 8*(r.Float32()-0.5), float32(r.IntN(int(steps)+1))
	}
	q, want := fenced[byte](t, rows*n), make([]byte, rows*n)
	RoundUpColumns(q, x, factor, offset, steps, least)
	roundUpColumnsGo(want, x, factor, offset, steps, least)
	if !bytes.Equal(q, want) {
		t.Fatalf("RoundUpColumns of %d × %v, factors %v, offsets %v: % x, want % x", rows, x, factor, offset, q, want)
	}
}

func checkPacking(t *testing.T, r *rand.Rand, n int) {
	q := randomBytes(t, r, n)
	for _, c := range []struct {
		name         string
		bits         int
		pack, packGo func(dst, q []byte)
		unpack       func(q, src []byte, signed bool)
		unpackGo     func(q, src []byte, sign byte)
	}{
		{"Pack2", 2, Pack2, pack2Go, Unpack2, unpack2Go},
		{"Pack4", 4, Pack4, pack4Go, Unpack4, unpack4Go},
	} {
		size := (n*c.bits + 7) / 8
		packed, want := fenced[byte](t, size), make([]byte, size)
		c.pack(packed, q)
		c.packGo(want, q)
		if !bytes.Equal(packed, want) {
			t.Fatalf("%s of % x: % x, want % x", c.name, q, packed, want)
		}
		for _, signed := range []bool{false, true} {
			sign := byte(0)
			if signed {
				sign = 1 << (c.bits - 1)
			}
			back, want := fenced[byte](t, n), make([]byte, n)
			c.unpack(back, packed, signed)
			c.unpackGo(want, packed, sign)
			if !bytes.Equal(back, want) {
				t.Fatalf("undone %s of % x: % x, want % x", c.name, packed, back, want)
			}
		}
	}
}

func checkHalves(t *testing.T, r *rand.Rand, n int) {
	src := randomBytes(t, r, 2*n)
	x, want := fenced[float32](t, n), make([]float32, n)
	FromFloat16(x, src)
	fromFloat16Go(want, src)
	sameFloats(t, "FromFloat16", x, want)
	FromBFloat16(x, src)
	fromBFloat16Go(want, src)
	sameFloats(t, "FromBFloat16", x, want)
}
