package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// dequantizeRows writes the loops of the parent's DequantizeBlock and DequantizeColumns, for whole
// vectors only.
func dequantizeRows(s isa) {
	TEXT("dequantizeBlock"+s.name, NOSPLIT, "func(x *float32, q *byte, scale float32, n int, lo, zero int32)")
	Pragma("noescape")
	Doc("dequantizeBlock" + s.name + " takes n codes, a multiple of the lanes. zero counts from lo.")
	x, q, n := param("x"), param("q"), param("n")
	scale, d := s.floatParam("scale"), newDecoder(s)
	i := GP64()
	XORQ(i, i)
	Label("vector")
	v := d.differences(at(q, i, 1), d.zero)
	VMULPS(scale, v, v)
	VMOVUPS(v, at(x, i, 4))
	ADDQ(operand.U8(s.lanes), i)
	CMPQ(i, n)
	JLT(operand.LabelRef("vector"))
	end()

	TEXT("dequantizeColumns"+s.name, NOSPLIT, "func(x *float32, q *byte, scale *float32, zeros *byte, n, whole, rows int, lo, zero int32)")
	Pragma("noescape")
	Doc("dequantizeColumns" + s.name + " takes the first columns of rows of n codes: whole, a multiple of the lanes. " +
		"If zeros is nil, all have one zero point, which counts from lo.")
	x, q, n = param("x"), param("q"), param("n")
	scales, zeros, whole, rows := param("scale"), param("zeros"), param("whole"), param("rows")
	d = newDecoder(s)
	loop := func(name string, zero func(i reg.GPVirtual) reg.VecVirtual) {
		eachRow(name, x, n, rows, func() {
			i := GP64()
			XORQ(i, i)
			Label(name + "Vector")
			v := d.differences(at(q, i, 1), zero(i))
			VMULPS(at(scales, i, 4), v, v)
			VMOVUPS(v, at(x, i, 4))
			ADDQ(operand.U8(s.lanes), i)
			CMPQ(i, whole)
			JLT(operand.LabelRef(name + "Vector"))
			ADDQ(n, q)
		})
		end()
	}
	TESTQ(zeros, zeros)
	JNZ(operand.LabelRef("zeros"))
	loop("one", func(reg.GPVirtual) reg.VecVirtual { return d.zero })
	Label("zeros")
	loop("each", func(i reg.GPVirtual) reg.VecVirtual { return d.aboveLeast(at(zeros, i, 1)) })
}

// decoder makes numbers of codes, which count from the least one.
type decoder struct {
	isa
	least reg.VecVirtual // in all bytes
	zero  reg.VecVirtual // the zero point, in all lanes
}

func newDecoder(s isa) decoder {
	lo, zero := GP32(), GP32()
	Load(Param("lo"), lo)
	Load(Param("zero"), zero)
	return decoder{s, broadcastByte(lo), s.broadcast(zero)}
}

// aboveLeast returns how far codes are above the least one.
func (d decoder) aboveLeast(q operand.Mem) reg.VecVirtual {
	codes, v := XMM(), d.vector()
	if d.wide() {
		VMOVDQU(q, codes)
	} else {
		VMOVQ(q, codes)
	}
	VPSUBB(d.least, codes, codes)
	VPMOVZXBD(codes, v)
	return v
}

// differences returns codes less the zero point.
func (d decoder) differences(q operand.Mem, zero reg.VecVirtual) reg.VecVirtual {
	v := d.aboveLeast(q)
	VPSUBD(zero, v, v)
	VCVTDQ2PS(v, v)
	return v
}
