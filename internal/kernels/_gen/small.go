package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Blocks of 32 elements in ggml's layouts: four vectors of AVX2, which is as fast as
// memory with these.

// eachSmallBlock writes a loop over blocks of 32 elements of x. The body gets a block's
// elements, their largest magnitude in all lanes, and registers for what follows.
func eachSmallBlock(size int, body func(x [4]reg.VecVirtual, at operand.Mem, amax, t reg.VecVirtual, dst operand.Mem)) {
	s := isas[0]
	dst, src, blocks := param("dst"), param("x"), param("blocks")
	abs := s.loaded(magnitude())
	Label("block")
	var x [4]reg.VecVirtual
	var a [4]reg.VecVirtual
	for i := range x {
		x[i], a[i] = YMM(), YMM()
		VMOVUPS(operand.Mem{Base: src, Disp: 32 * i}, x[i])
		VANDPS(abs, x[i], a[i])
	}
	amax, t := YMM(), a[0]
	VMAXPS(a[0], a[1], amax)
	VMAXPS(a[2], a[3], a[2])
	VMAXPS(a[2], amax, amax)
	VPERM2F128(operand.U8(1), amax, amax, t)
	VMAXPS(t, amax, amax)
	VSHUFPS(operand.U8(0x4e), amax, amax, t)
	VMAXPS(t, amax, amax)
	VSHUFPS(operand.U8(0xb1), amax, amax, t)
	VMAXPS(t, amax, amax)
	body(x, mem(src), amax, t, mem(dst))
	ADDQ(operand.U8(size), dst)
	SUBQ(operand.I8(-128), src)
	DECQ(blocks)
	JNZ(operand.LabelRef("block"))
	end()
}

// finite makes v zero unless it is finite.
func finite(v, t reg.VecVirtual, abs, infinity reg.VecVirtual) {
	VANDPS(abs, v, t)
	VCMPPS(less, infinity, t, t)
	VANDPS(t, v, v)
}

// quantizeNibbles makes blocks of Q4_0.
func quantizeNibbles() {
	TEXT("quantizeNibblesAVX2", NOSPLIT, "func(dst *byte, x *float32, blocks int)")
	Pragma("noescape")
	s := isas[0]
	minusEight, one, half := s.float(-8), s.float(1), s.float(8.5)
	abs, infinity, last := s.loaded(magnitude()), s.all(0xff<<23), s.all(15)
	eachSmallBlock(18, func(x [4]reg.VecVirtual, src operand.Mem, amax, t reg.VecVirtual, dst operand.Mem) {
		var bits [4]reg.GPVirtual
		for i := range bits { // where elements are as large
			bits[i] = GP32()
			VANDPS(abs, x[i], t)
			VCMPPS(equal, amax, t, t)
			VMOVMSKPS(t, bits[i])
		}
		for i, b := range bits[1:] {
			SHLL(operand.U8(8*(i+1)), b)
			ORL(b, bits[0])
		}
		TZCNTL(bits[0], bits[0])
		ANDL(operand.U8(31), bits[0]) // of NaN, the first element
		extreme, zero := YMM(), YMM()
		VBROADCASTSS(operand.Mem{Base: src.Base, Index: bits[0].As64(), Scale: 4}, extreme)
		VXORPS(zero, zero, zero)
		VCMPPS(notEqual, zero, amax, t)
		VANDPS(t, extreme, extreme) // not -0
		VDIVPS(minusEight, extreme, extreme)
		VCVTPS2PH(operand.U8(0), extreme.AsX(), t.AsX())
		VPEXTRW(operand.U8(0), t.AsX(), dst)
		inverse := YMM()
		VDIVPS(extreme, one, inverse)
		finite(inverse, t, abs, infinity)
		for i := range x {
			VMULPS(inverse, x[i], x[i])
			VADDPS(half, x[i], x[i])
			VCVTTPS2DQ(x[i], x[i])
			VPMINSD(last, x[i], x[i])
		}
		for i := range 2 {
			VPSLLD(operand.U8(4), x[i+2], x[i+2])
			VPOR(x[i+2], x[i], x[i])
		}
		bytes(x[0], x[1])
		VMOVDQU(x[0].AsX(), operand.Mem{Base: dst.Base, Disp: 2})
	})
}

// quantizeBytes makes blocks of Q8_0.
func quantizeBytes() {
	TEXT("quantizeBytesAVX2", NOSPLIT, "func(dst *byte, x *float32, blocks int)")
	Pragma("noescape")
	s := isas[0]
	largest, one, half := s.float(127), s.float(1), s.float(0.5)
	abs, infinity := s.loaded(magnitude()), s.all(0xff<<23)
	eachSmallBlock(34, func(x [4]reg.VecVirtual, _ operand.Mem, scale, t reg.VecVirtual, dst operand.Mem) {
		VDIVPS(largest, scale, scale)
		VCVTPS2PH(operand.U8(0), scale.AsX(), t.AsX())
		VPEXTRW(operand.U8(0), t.AsX(), dst)
		inverse := YMM()
		VDIVPS(scale, one, inverse)
		finite(inverse, t, abs, infinity)
		for i := range x { // ties go away from 0
			VMULPS(inverse, x[i], x[i])
			whole := YMM()
			VROUNDPS(operand.U8(3), x[i], whole)
			VSUBPS(whole, x[i], t)
			VANDPS(abs, t, t)
			VCMPPS(less, half, t, t)
			VPANDN(one, t, t) // 1 from a half on
			VANDNPS(x[i], abs, x[i])
			VORPS(t, x[i], x[i])
			VADDPS(whole, x[i], x[i])
			VCVTTPS2DQ(x[i], x[i])
		}
		VPACKSSDW(x[1], x[0], x[0]) // words 0 … 3, 8 … 11, 4 … 7, 12 … 15
		VPACKSSDW(x[3], x[2], x[2])
		VPACKSSWB(x[2], x[0], x[0]) // in fours 0 2 4 6 1 3 5 7
		order := s.loaded(bytesInOrder())
		VPERMD(x[0], order, x[0])
		VMOVDQU(x[0], operand.Mem{Base: dst.Base, Disp: 2})
	})
}

// bytesInOrder is the order of fours of bytes that packing leaves them in.
func bytesInOrder() operand.Mem {
	m := GLOBL("bytesInOrder", attr.RODATA|attr.NOPTR)
	for i, four := range []uint32{0, 4, 1, 5, 2, 6, 3, 7} {
		DATA(4*i, operand.U32(four))
	}
	return m
}
