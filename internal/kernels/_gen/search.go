package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The searches take one block a lane: element i of all blocks is one vector, and
// vectors follow one another. So sums of a block go in the order of its elements.

// Predicates of VCMPPS. NaN is equal to nothing.
const (
	equal    = operand.U8(0x00)
	notEqual = operand.U8(0x04)
	less     = operand.U8(0x11)
	greater  = operand.U8(0x1e)
)

// compare returns a mask of the lanes in which a is b, less or greater.
func (s isa) compare(a reg.VecVirtual, predicate operand.U8, b operand.Op) reg.Register {
	if s.wide() {
		k := K()
		VCMPPS(predicate, b, a, k)
		return k
	}
	m := YMM()
	VCMPPS(predicate, b, a, m)
	return m
}

// both makes m the lanes of it that are in n too.
func (s isa) both(m, n reg.Register) {
	if s.wide() {
		KANDW(m, n, m)
	} else {
		VANDPS(m, n, m)
	}
}

// choose copies the lanes of a mask from v to dst.
func (s isa) choose(m reg.Register, v, dst reg.VecVirtual) {
	if s.wide() {
		VMOVAPS(v, m, dst)
	} else {
		VBLENDVPS(m, v, dst, dst)
	}
}

// vectorAt is the vector i bytes from p on.
func vectorAt(p, i reg.Register) operand.Mem { return operand.Mem{Base: p, Index: i, Scale: 1} }

func (s isa) loaded(m operand.Mem) reg.VecVirtual {
	v := s.vector()
	VMOVUPS(m, v)
	return v
}

func (s isa) zero() reg.VecVirtual {
	v := s.vector()
	s.xor(v, v, v)
	return v
}

// float returns a vector of one number.
func (s isa) float(v float32) reg.VecVirtual { return s.all(math.Float32bits(v)) }

// broadcastFloat returns a vector of the float at m.
func (s isa) broadcastFloat(m operand.Mem) reg.VecVirtual {
	v := s.vector()
	VBROADCASTSS(m, v)
	return v
}

// floatParam returns a vector of a parameter.
func (s isa) floatParam(name string) reg.VecVirtual {
	x, v := XMM(), s.vector()
	Load(Param(name), x)
	VBROADCASTSS(x, v)
	return v
}

// negate changes the sign of v.
func (s isa) negate(v reg.VecVirtual) {
	sign := s.all(1 << 31)
	s.xor(sign, v, v)
}

// eachElement writes a loop over the vectors of size bytes.
func eachElement(name string, size reg.GPVirtual, step int, body func(i reg.GPVirtual)) {
	i := GP64()
	XORQ(i, i)
	Label(name)
	body(i)
	ADDQ(operand.U8(step), i)
	CMPQ(i, size)
	JLT(operand.LabelRef(name))
}

// round makes v the nearest integer within lo … hi, which are vectors.
func (s isa) round(v, magic, lo, hi reg.VecVirtual) {
	VADDPS(magic, v, v)
	VSUBPS(magic, v, v)
	VMAXPS(lo, v, v) // v > lo ? v : lo
	VMINPS(hi, v, v)
}

// laneWeights sets w to the weights of a block's elements, as the parent package's
// Weighting says.
func laneWeights(s isa) {
	TEXT("laneWeights"+s.name, NOSPLIT, "func(w, x *float32, size int, weighting int, n float32)")
	Pragma("noescape")
	w, x, size, weighting := param("w"), param("x"), param("size"), param("weighting")
	step := 4 * s.lanes
	const magnitudes, aboveAverage = 1, 2
	root := s.zero()
	CMPQ(weighting, operand.U8(magnitudes))
	JEQ(operand.LabelRef("weigh"))
	CMPQ(weighting, operand.U8(aboveAverage))
	JNE(operand.LabelRef("squares"))
	eachElement("mean", size, step, func(i reg.GPVirtual) {
		v := s.loaded(vectorAt(x, i))
		VMULPS(v, v, v)
		VADDPS(v, root, root)
	})
	VDIVPS(s.floatParam("n"), root, root)
	VSQRTPS(root, root)
	Label("weigh")
	abs := s.loaded(magnitude())
	eachElement("weights", size, step, func(i reg.GPVirtual) {
		v := s.loaded(vectorAt(x, i))
		s.and(abs, v, v)
		VADDPS(root, v, v)
		VMOVUPS(v, vectorAt(w, i))
	})
	end()
	Label("squares")
	eachElement("square", size, step, func(i reg.GPVirtual) {
		v := s.loaded(vectorAt(x, i))
		VMULPS(v, v, v)
		VMOVUPS(v, vectorAt(w, i))
	})
	end()
}

// affineSearch searches one block a lane. codes are how many codes the range of each
// try has, the first of them that of the range of all elements. q is for the codes of
// a try.
func affineSearch(s isa) {
	TEXT("affineSearch"+s.name, NOSPLIT, "func(scale, least, inverse, low, x, w, q *float32, size int, codes *float32, tries int, last float32, absolute bool)")
	Pragma("noescape")
	x, w, q, size := param("x"), param("w"), param("q"), param("size")
	codes, tries := param("codes"), param("tries")
	absolute := Load(Param("absolute"), GP8())
	step := 4 * s.lanes
	local := func() operand.Mem { return AllocLocal(step) }
	sumW, sumX, high, best, flat := local(), local(), local(), local(), local()
	found := func(name string) operand.Mem { return mem(param(name)) }
	magic := s.loaded(magic())
	zero := s.zero()
	last := s.floatParam("last")

	{ // the range, and sums that no codes are in
		lo, hi := s.loaded(mem(x)), s.loaded(mem(x))
		sw, sx := s.zero(), s.zero()
		eachElement("range", size, step, func(i reg.GPVirtual) {
			v, t := s.loaded(vectorAt(x, i)), s.loaded(vectorAt(w, i))
			VMINPS(lo, v, lo) // v < lo ? v : lo
			VMAXPS(hi, v, hi)
			VADDPS(t, sw, sw)
			VMULPS(v, t, t)
			VADDPS(t, sx, sx)
		})
		VMINPS(lo, zero, lo)
		VMOVUPS(sw, sumW)
		VMOVUPS(sx, sumX)
		VMOVUPS(hi, high)
		VMOVUPS(lo, found("least"))
		VMOVUPS(lo, found("low"))
		f := s.vector()
		if s.wide() {
			ones := s.all(1<<32 - 1)
			s.xor(f, f, f)
			s.choose(s.compare(lo, equal, hi), ones, f)
		} else {
			VCMPPS(equal, hi, lo, f)
		}
		VMOVUPS(f, flat)
	}

	// encode writes a loop that sets q to codes. more does more with them.
	encode := func(name string, in, least reg.VecVirtual, more func(v, q reg.VecVirtual, i reg.GPVirtual)) {
		eachElement(name, size, step, func(i reg.GPVirtual) {
			v, t := s.loaded(vectorAt(x, i)), s.vector()
			VSUBPS(least, v, t)
			VMULPS(in, t, t)
			s.round(t, magic, zero, last)
			VMOVUPS(t, vectorAt(q, i))
			if more != nil {
				more(v, t, i)
			}
		})
	}
	// errors writes loops that add the weighted errors of codes.
	errors := func(name string, scale, least reg.VecVirtual) (sum reg.VecVirtual) {
		sum = s.zero()
		loop := func(name string, penalty func(d reg.VecVirtual)) {
			eachElement(name, size, step, func(i reg.GPVirtual) {
				d := s.vector()
				VMULPS(vectorAt(q, i), scale, d)
				VADDPS(least, d, d)
				VSUBPS(vectorAt(x, i), d, d)
				penalty(d)
				VMULPS(vectorAt(w, i), d, d)
				VADDPS(d, sum, sum)
			})
		}
		TESTB(absolute, absolute)
		JNZ(operand.LabelRef(name + "Absolute"))
		loop(name+"Square", func(d reg.VecVirtual) { VMULPS(d, d, d) })
		JMP(operand.LabelRef(name + "Done"))
		Label(name + "Absolute")
		loop(name+"Magnitude", func(d reg.VecVirtual) { s.and(magnitude(), d, d) })
		Label(name + "Done")
		return sum
	}

	{ // what is to be beaten
		in, least, scale := s.vector(), s.loaded(found("least")), s.float(1)
		span := s.loaded(high)
		VSUBPS(least, span, span)
		VDIVPS(span, s.broadcastFloat(mem(codes)), in)
		VDIVPS(in, scale, scale)
		encode("first", in, least, nil)
		VMOVUPS(in, found("inverse"))
		VMOVUPS(scale, found("scale"))
		VMOVUPS(errors("first", scale, least), best)
	}

	Label("try")
	ADDQ(operand.U8(4), codes)
	{
		in, least := s.vector(), s.loaded(found("least"))
		span := s.loaded(high)
		VSUBPS(least, span, span)
		VDIVPS(span, s.broadcastFloat(mem(codes)), in)
		sumQ, sumQQ, sumXQ := s.zero(), s.zero(), s.zero()
		encode("sums", in, least, func(v, q reg.VecVirtual, i reg.GPVirtual) {
			wq := s.vector()
			VMULPS(vectorAt(w, i), q, wq)
			VADDPS(wq, sumQ, sumQ)
			VMULPS(wq, q, q)
			VADDPS(q, sumQQ, sumQQ)
			VMULPS(wq, v, v)
			VADDPS(v, sumXQ, sumXQ)
		})
		VMOVUPS(in, vectorAt(q, size)) // behind the codes
		// a*b - c*d
		difference := func(a operand.Op, b reg.VecVirtual, c operand.Op, d reg.VecVirtual) reg.VecVirtual {
			v, t := s.vector(), s.vector()
			VMULPS(a, b, v)
			VMULPS(c, d, t)
			VSUBPS(t, v, v)
			return v
		}
		det := difference(sumW, sumQQ, sumQ, sumQ)
		fitted := difference(sumW, sumXQ, sumX, sumQ)
		from := difference(sumX, sumQQ, sumQ, sumXQ)
		VDIVPS(det, fitted, fitted)
		VDIVPS(det, from, from)
		VDIVPS(sumQQ, sumXQ, sumXQ)
		positive := s.compare(from, greater, zero)
		s.choose(positive, sumXQ, fitted)
		s.choose(positive, zero, from)
		better := s.compare(det, greater, zero)
		e := errors("try", fitted, from)
		least = s.loaded(found("least"))
		s.both(better, s.compare(e, less, best))
		keep := func(v reg.VecVirtual, dst operand.Mem) {
			old := s.loaded(dst)
			s.choose(better, v, old)
			VMOVUPS(old, dst)
		}
		keep(e, best)
		keep(s.loaded(vectorAt(q, size)), found("inverse"))
		keep(least, found("low"))
		keep(fitted, found("scale"))
		keep(from, found("least"))
	}
	DECQ(tries)
	JNZ(operand.LabelRef("try"))

	{ // blocks of a single value
		f := s.loaded(flat)
		m := reg.Register(f)
		if s.wide() {
			k := K()
			VPMOVD2M(f, k)
			m = k
		}
		for _, name := range []string{"scale", "inverse"} {
			v := s.loaded(found(name))
			s.choose(m, zero, v)
			VMOVUPS(v, found(name))
		}
		low, least := s.loaded(found("low")), s.loaded(found("least"))
		s.choose(m, low, least)
		s.negate(least)
		VMOVUPS(least, found("least"))
	}
	end()
}

// symmetricSearch searches one block a lane. codes are the codes that the element of
// largest magnitude is to have. wx is for weighted elements.
func symmetricSearch(s isa) {
	TEXT("symmetricSearch"+s.name, NOSPLIT, "func(scale, inverse, x, w, wx *float32, size int, codes *float32, tries int, half, negligible float32)")
	Pragma("noescape")
	x, w, wx, size := param("x"), param("w"), param("wx"), param("size")
	codes, tries := param("codes"), param("tries")
	step := 4 * s.lanes
	magic, abs := s.loaded(magic()), s.loaded(magnitude())
	largest := s.zero()
	{
		amax := s.zero()
		eachElement("largest", size, step, func(i reg.GPVirtual) {
			v, a := s.loaded(vectorAt(x, i)), s.vector()
			s.and(abs, v, a)
			m := s.compare(a, greater, amax)
			s.choose(m, v, largest)
			s.choose(m, a, amax)
			VMULPS(vectorAt(w, i), v, v)
			VMOVUPS(v, vectorAt(wx, i))
		})
	}
	hi, lo, one := s.floatParam("half"), s.zero(), s.float(1)
	VSUBPS(hi, lo, lo)
	VSUBPS(one, hi, hi)
	fit := func(name string) (in, xq, qq reg.VecVirtual) {
		in, xq, qq = s.vector(), s.zero(), s.zero()
		VDIVPS(largest, s.broadcastFloat(mem(codes)), in)
		eachElement(name, size, step, func(i reg.GPVirtual) {
			q, t := s.vector(), s.vector()
			VMULPS(vectorAt(x, i), in, q)
			s.round(q, magic, lo, hi)
			VMULPS(vectorAt(wx, i), q, t)
			VADDPS(t, xq, xq)
			VMULPS(vectorAt(w, i), q, t)
			VMULPS(q, t, t)
			VADDPS(t, qq, qq)
		})
		return in, xq, qq
	}
	inverse, xq, qq := fit("first")
	scale, best := s.zero(), s.vector()
	nonzero := s.compare(qq, notEqual, scale)
	VDIVPS(qq, xq, qq)
	s.choose(nonzero, qq, scale)
	VMULPS(scale, xq, best)
	Label("try")
	ADDQ(operand.U8(4), codes)
	{
		in, xq, qq := fit("sums")
		a, b, zero := s.vector(), s.vector(), s.zero()
		VMULPS(xq, xq, a)
		VMULPS(best, qq, b)
		better := s.compare(a, greater, b)
		s.both(better, s.compare(qq, greater, zero))
		VDIVPS(qq, xq, qq)
		s.choose(better, in, inverse)
		s.choose(better, qq, scale)
		VMULPS(qq, xq, qq)
		s.choose(better, qq, best)
	}
	DECQ(tries)
	JNZ(operand.LabelRef("try"))
	zero, limit := s.zero(), s.floatParam("negligible")
	s.and(abs, largest, largest)
	nothing := s.compare(largest, less, limit)
	s.choose(nothing, zero, scale)
	s.choose(nothing, zero, inverse)
	VMOVUPS(scale, mem(param("scale")))
	VMOVUPS(inverse, mem(param("inverse")))
	end()
}

// transpose makes rows of n elements, as many rows as lanes, columns. n is a multiple
// of 8.
func transpose(s isa) {
	TEXT("transpose"+s.name, NOSPLIT, "func(dst, src *float32, n int)")
	Pragma("noescape")
	dst, src, n := param("dst"), param("src"), param("n")
	stride, i := GP64(), GP64()
	MOVQ(n, stride)
	SHLQ(operand.U8(2), stride)
	stride3 := GP64()
	LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	for group := range s.lanes / 8 {
		name := string(rune('a' + group))
		from, to := GP64(), GP64()
		MOVQ(src, from)
		LEAQ(operand.Mem{Base: dst, Disp: 32 * group}, to)
		MOVQ(n, i)
		Label(name)
		upper := GP64()
		LEAQ(operand.Mem{Base: from, Index: stride, Scale: 4}, upper)
		var r [8]reg.VecVirtual
		for j := range r {
			base := from
			if j >= 4 {
				base = upper
			}
			r[j] = YMM()
			switch j % 4 {
			case 0:
				VMOVUPS(mem(base), r[j])
			case 1:
				VMOVUPS(at(base, stride, 1), r[j])
			case 2:
				VMOVUPS(at(base, stride, 2), r[j])
			case 3:
				VMOVUPS(at(base, stride3, 1), r[j])
			}
		}
		var pairs, fours [8]reg.VecVirtual
		for j := 0; j < 8; j += 2 {
			pairs[j], pairs[j+1] = YMM(), YMM()
			VUNPCKLPS(r[j+1], r[j], pairs[j])
			VUNPCKHPS(r[j+1], r[j], pairs[j+1])
		}
		for j := 0; j < 8; j += 4 {
			for k := range 2 {
				fours[j+2*k], fours[j+2*k+1] = YMM(), YMM()
				VSHUFPS(operand.U8(0x44), pairs[j+2+k], pairs[j+k], fours[j+2*k])
				VSHUFPS(operand.U8(0xee), pairs[j+2+k], pairs[j+k], fours[j+2*k+1])
			}
		}
		for j := range 4 {
			low, high := YMM(), YMM()
			VPERM2F128(operand.U8(0x20), fours[j+4], fours[j], low)
			VPERM2F128(operand.U8(0x31), fours[j+4], fours[j], high)
			VMOVUPS(low, operand.Mem{Base: to, Disp: 4 * s.lanes * j})
			VMOVUPS(high, operand.Mem{Base: to, Disp: 4 * s.lanes * (j + 4)})
		}
		ADDQ(operand.U8(32), from)
		ADDQ(operand.U32(4*s.lanes*8), to)
		SUBQ(operand.U8(8), i)
		JNZ(operand.LabelRef(name))
		if group+1 < s.lanes/8 {
			LEAQ(operand.Mem{Base: src, Index: stride, Scale: 8}, src)
		}
	}
	end()
}

// recode gives codes to blocks, whose length is a multiple of 16, each with a scale and a least
// value.
func recode() {
	TEXT("recodeAVX2", NOSPLIT, "func(q *byte, x, scale, least *float32, blocks, block int, zero, last int32)")
	Pragma("noescape")
	s := isas[0]
	q, x, scale, least := param("q"), param("x"), param("scale"), param("least")
	blocks, block := param("blocks"), param("block")
	zero, last := s.broadcast(Load(Param("zero"), GP32())), s.broadcast(Load(Param("last"), GP32()))
	offset := s.all(1 << 22) // what the bits of the sum have too many
	VPSUBD(zero, offset, offset)
	nothing := s.zero()
	magic, mantissa := s.loaded(magic()), s.all(1<<23-1)
	Label("block")
	d, m := s.broadcastFloat(mem(scale)), s.broadcastFloat(mem(least))
	n := GP64()
	MOVQ(block, n)
	Label("sixteen")
	var codes [2]reg.VecVirtual
	for i := range codes {
		v := YMM()
		VADDPS(operand.Mem{Base: x, Disp: 32 * i}, m, v)
		VDIVPS(d, v, v)
		VADDPS(magic, v, v)
		VPAND(mantissa, v, v)
		VPSUBD(offset, v, v)
		VPMAXSD(nothing, v, v)
		VPMINSD(last, v, v)
		codes[i] = v
	}
	bytes(codes[0], codes[1])
	VMOVDQU(codes[0].AsX(), mem(q))
	ADDQ(operand.U8(64), x)
	ADDQ(operand.U8(16), q)
	SUBQ(operand.U8(16), n)
	JNZ(operand.LabelRef("sixteen"))
	ADDQ(operand.U8(4), scale)
	ADDQ(operand.U8(4), least)
	DECQ(blocks)
	JNZ(operand.LabelRef("block"))
	end()
}

// bytes packs the small integers of two YMM registers, those of b after those of a, to
// bytes in the lower half of a.
func bytes(a, b reg.VecVirtual) {
	VPACKUSDW(b, a, a)                   // a0 b0 a1 b1
	VPERMQ(operand.U8(0b11011000), a, a) // a0 a1 b0 b1
	t := YMM()
	VEXTRACTI128(operand.U8(1), a, t.AsX())
	VPACKUSWB(t.AsX(), a.AsX(), a.AsX())
}
