package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// eachPiece writes a loop over n codes, so many at a time. It destroys n.
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
