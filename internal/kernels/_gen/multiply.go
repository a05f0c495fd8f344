package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// addMultiple adds a multiple of x to y. Products are rounded before they are added, as in Go.
func addMultiple(s isa) {
	TEXT("addMultiple"+s.name, NOSPLIT, "func(y, x *float32, n int, factor float32)")
	Pragma("noescape")
	y, x, n, factor := param("y"), param("x"), param("n"), s.floatParam("factor")
	s.eachVector("", n, func(i reg.GPVirtual, t *tail) {
		v, sum := s.vector(), s.vector()
		s.load(at(x, i, 4), t, v)
		s.load(at(y, i, 4), t, sum)
		VMULPS(factor, v, v)
		VADDPS(v, sum, sum)
		s.store(sum, t, at(y, i, 4))
	})
	end()
}

// multiplyTile sets a tile to the sum of another one and the product of two packed matrices. Products are
// rounded before they are added, as in Go.
func multiplyTile() {
	const rows, vectors = 6, 2
	TEXT("multiplyTileAVX2", NOSPLIT, "func(c *float32, stride int, from *float32, fromStride int, a, b *float32, n int)")
	Pragma("noescape")
	Doc("multiplyTileAVX2 sets a tile of c to a·b and a tile of from, whose rows are stride and fromStride apart; n is above 0.")
	c := Load(Param("c"), GP64())
	stride := Load(Param("stride"), GP64())
	from := Load(Param("from"), GP64())
	fromStride := Load(Param("fromStride"), GP64())
	a := Load(Param("a"), GP64())
	b := Load(Param("b"), GP64())
	n := Load(Param("n"), GP64())
	var sums [rows][vectors]reg.VecVirtual
	for i := range sums {
		for j := range sums[i] {
			sums[i][j] = YMM()
			VXORPS(sums[i][j], sums[i][j], sums[i][j])
		}
	}
	right := [vectors]reg.VecVirtual{YMM(), YMM()}
	left, product := YMM(), YMM()
	Label("next")
	for j, v := range right {
		VMOVUPS(operand.Mem{Base: b, Disp: 32 * j}, v)
	}
	for i := range sums {
		VBROADCASTSS(operand.Mem{Base: a, Disp: 4 * i}, left)
		for j, v := range right {
			VMULPS(v, left, product)
			VADDPS(product, sums[i][j], sums[i][j])
		}
	}
	ADDQ(operand.U32(4*rows), a)
	ADDQ(operand.U32(32*vectors), b)
	DECQ(n)
	JNZ(operand.LabelRef("next"))
	SHLQ(operand.U8(2), stride)
	SHLQ(operand.U8(2), fromStride)
	for i := range sums {
		for j, v := range sums[i] {
			VADDPS(operand.Mem{Base: from, Disp: 32 * j}, v, v)
			VMOVUPS(v, operand.Mem{Base: c, Disp: 32 * j})
		}
		ADDQ(stride, c)
		ADDQ(fromStride, from)
	}
	VZEROUPPER()
	RET()
}
