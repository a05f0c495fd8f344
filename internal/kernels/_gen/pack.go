package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// eachPiece writes a loop over n codes, codes of them at a time. It destroys n.
func eachPiece(n reg.GPVirtual, codes int, body func()) {
	Label("loop")
	body()
	SUBQ(operand.U8(codes), n)
	JNZ(operand.LabelRef("loop"))
	end()
}

// ymm returns a vector of one number.
func ymm(bits uint32) reg.VecVirtual { return isa{"AVX2", 8}.all(bits) }

// fold loads 32 codes, keeps their low bits and joins neighbours into words.
func fold(m operand.Mem, low, factors reg.VecVirtual) reg.VecVirtual {
	v := YMM()
	VPAND(m, low, v)
	VPMADDUBSW(factors, v, v)
	return v
}

func pack4() {
	TEXT("pack4AVX2", NOSPLIT, "func(dst, q *byte, n int)")
	Pragma("noescape")
	Doc("pack4AVX2 packs n codes, a multiple of 64.")
	dst, q, n := param("dst"), param("q"), param("n")
	low, factors := ymm(0x0f0f0f0f), ymm(0x10011001)
	eachPiece(n, 64, func() {
		a := fold(mem(q), low, factors)
		b := fold(mem(q).Offset(32), low, factors)
		VPACKUSWB(b, a, a)
		VPERMQ(operand.U8(0xd8), a, a) // lanes in order
		VMOVDQU(a, mem(dst))
		ADDQ(operand.U8(64), q)
		ADDQ(operand.U8(32), dst)
	})
}

func pack2() {
	TEXT("pack2AVX2", NOSPLIT, "func(dst, q *byte, n int)")
	Pragma("noescape")
	Doc("pack2AVX2 packs n codes, a multiple of 64.")
	dst, q, n := param("dst"), param("q"), param("n")
	low, factors, pairs := ymm(0x03030303), ymm(0x04010401), ymm(0x00100001)
	eachPiece(n, 64, func() {
		a := fold(mem(q), low, factors)
		b := fold(mem(q).Offset(32), low, factors)
		VPMADDWD(pairs, a, a)
		VPMADDWD(pairs, b, b)
		VPACKUSDW(b, a, a)
		VPERMQ(operand.U8(0xd8), a, a)
		high := XMM()
		VEXTRACTI128(operand.U8(1), a, high)
		VPACKUSWB(high, a.AsX(), high)
		VMOVDQU(high, mem(dst))
		ADDQ(operand.U8(64), q)
		ADDQ(operand.U8(16), dst)
	})
}

// extend takes the sign off codes: the value of its bit is counted as negative.
func extend(v, sign reg.VecVirtual) {
	VPXOR(sign, v, v)
	VPSUBB(sign, v, v)
}

func unpack4() {
	TEXT("unpack4AVX2", NOSPLIT, "func(q, src *byte, n int, sign byte)")
	Pragma("noescape")
	Doc("unpack4AVX2 unpacks n codes, a multiple of 32, whose sign bit, or none, is given.")
	q, src, n := param("q"), param("src"), param("n")
	low, sign := ymm(0x0f0f0f0f), signParam()
	eachPiece(n, 32, func() {
		v, high := YMM(), YMM()
		VPMOVZXBW(mem(src), v)
		VPSLLW(operand.U8(4), v, high)
		VPOR(high, v, v)
		VPAND(low, v, v)
		extend(v, sign)
		VMOVDQU(v, mem(q))
		ADDQ(operand.U8(16), src)
		ADDQ(operand.U8(32), q)
	})
}

func unpack2() {
	TEXT("unpack2AVX2", NOSPLIT, "func(q, src *byte, n int, sign byte)")
	Pragma("noescape")
	Doc("unpack2AVX2 unpacks n codes, a multiple of 32, whose sign bit, or none, is given.")
	q, src, n := param("q"), param("src"), param("n")
	nibbles, low, sign := ymm(0x000f000f), ymm(0x03030303), signParam()
	eachPiece(n, 32, func() {
		v, high := YMM(), YMM()
		VPMOVZXBD(mem(src), v)
		VPSLLD(operand.U8(12), v, high)
		VPOR(high, v, v)
		VPAND(nibbles, v, v)
		VPSLLW(operand.U8(6), v, high)
		VPOR(high, v, v)
		VPAND(low, v, v)
		extend(v, sign)
		VMOVDQU(v, mem(q))
		ADDQ(operand.U8(8), src)
		ADDQ(operand.U8(32), q)
	})
}

func signParam() reg.VecVirtual {
	r := GP32()
	Load(Param("sign"), r.As8())
	x, v := XMM(), YMM()
	VMOVD(r, x)
	VPBROADCASTB(x, v)
	return v
}

func fromFloat16() {
	TEXT("fromFloat16AVX2", NOSPLIT, "func(x *float32, src *byte, n int)")
	Pragma("noescape")
	Doc("fromFloat16AVX2 converts n elements, a multiple of 16.")
	x, src, n := param("x"), param("src"), param("n")
	eachPiece(n, 16, func() {
		a, b := YMM(), YMM()
		VCVTPH2PS(mem(src), a)
		VCVTPH2PS(mem(src).Offset(16), b)
		VMOVUPS(a, mem(x))
		VMOVUPS(b, mem(x).Offset(32))
		ADDQ(operand.U8(32), src)
		ADDQ(operand.U8(64), x)
	})
}

func fromBFloat16() {
	TEXT("fromBFloat16AVX2", NOSPLIT, "func(x *float32, src *byte, n int)")
	Pragma("noescape")
	Doc("fromBFloat16AVX2 converts n elements, a multiple of 16.")
	x, src, n := param("x"), param("src"), param("n")
	eachPiece(n, 16, func() {
		for i := range 2 {
			v := YMM()
			VPMOVZXWD(mem(src).Offset(16*i), v)
			VPSLLD(operand.U8(16), v, v)
			VMOVDQU(v, mem(x).Offset(32*i))
		}
		ADDQ(operand.U8(32), src)
		ADDQ(operand.U8(64), x)
	})
}

// losses counts, in the lanes of vectors, elements that a narrower type cannot represent.
type losses struct {
	magnitude, zero, largest, greatest, infinity, least reg.VecVirtual
	beyond, vanished, nan                               reg.VecVirtual
}

// countLosses begins counting finite magnitudes above largest and nonzero ones up to least,
// both as bits.
func countLosses(largest, least uint32) losses {
	s := isas[0]
	zeros := func() reg.VecVirtual {
		v := YMM()
		VPXOR(v, v, v)
		return v
	}
	return losses{
		s.all(1<<31 - 1), zeros(), s.all(largest), s.all(0xff<<23 - 1), s.all(0xff << 23), s.all(least),
		zeros(), zeros(), zeros(),
	}
}

// add counts the elements of v.
func (l losses) add(v reg.VecVirtual) {
	abs, a, b := YMM(), YMM(), YMM()
	VPAND(l.magnitude, v, abs)
	VPCMPGTD(l.infinity, abs, a)
	VPSUBD(a, l.nan, l.nan)
	VPCMPGTD(l.largest, abs, a)
	VPCMPGTD(l.greatest, abs, b)
	VPANDN(a, b, a)
	VPSUBD(a, l.beyond, l.beyond)
	VPCMPGTD(l.zero, abs, a)
	VPCMPGTD(l.least, abs, b)
	VPANDN(a, b, a)
	VPSUBD(a, l.vanished, l.vanished)
}

// store stores the counts.
func (l losses) store(counts operand.Mem) {
	VMOVDQU(l.beyond, counts)
	VMOVDQU(l.vanished, counts.Offset(32))
	VMOVDQU(l.nan, counts.Offset(64))
}

// narrowing writes a function that converts to a type of 16 bits. step stores 16 elements,
// already counted, at dst.
func narrowing(name string, largest, least uint32, step func(v [2]reg.VecVirtual, dst operand.Mem)) {
	TEXT(name, NOSPLIT, "func(dst *byte, x *float32, n int, counts *uint32)")
	Pragma("noescape")
	Doc(name + " converts n elements, a multiple of 16. counts gets, in 8 lanes each, how many finite ones became infinite, how many nonzero ones 0, and how many are NaN.")
	dst, x, n, counts := param("dst"), param("x"), param("n"), param("counts")
	l := countLosses(largest, least)
	Label("loop")
	var v [2]reg.VecVirtual
	for i := range v {
		v[i] = YMM()
		VMOVDQU(mem(x).Offset(32*i), v[i])
		l.add(v[i])
	}
	step(v, mem(dst))
	ADDQ(operand.U8(64), x)
	ADDQ(operand.U8(32), dst)
	SUBQ(operand.U8(16), n)
	JNZ(operand.LabelRef("loop"))
	l.store(mem(counts))
	end()
}

func toFloat16() {
	narrowing("toFloat16AVX2", 0x477fefff, 0x33000000, func(v [2]reg.VecVirtual, dst operand.Mem) {
		for i := range v {
			VCVTPS2PH(operand.U8(0), v[i], dst.Offset(16*i))
		}
	})
}

func toBFloat16() {
	narrowing("toBFloat16AVX2", 0x7f7f7fff, 0x8000, func(v [2]reg.VecVirtual, dst operand.Mem) {
		odd, one, bias := YMM(), YMM(), YMM()
		VPCMPEQD(one, one, one)
		VPSRLD(operand.U8(17), one, bias) // 0x7fff
		VPSRLD(operand.U8(31), one, one)  // 1
		for _, v := range v {
			VPSRLD(operand.U8(16), v, odd)
			VPAND(one, odd, odd)
			VPADDD(bias, v, v)
			VPADDD(odd, v, v)
			VPSRLD(operand.U8(16), v, v)
		}
		VPACKUSDW(v[1], v[0], v[0])
		VPERMQ(operand.U8(0xd8), v[0], v[0])
		VMOVDQU(v[0], dst)
	})
}

func hasF16C() {
	TEXT("hasF16C", NOSPLIT, "func() bool")
	Doc("hasF16C asks the processor for the conversions of float16, which comes after asking for AVX.")
	MOVL(operand.U32(1), reg.EAX)
	XORL(reg.ECX, reg.ECX)
	CPUID()
	SHRL(operand.U8(29), reg.ECX)
	ANDL(operand.U8(1), reg.ECX)
	Store(reg.CL, ReturnIndex(0))
	RET()
}
