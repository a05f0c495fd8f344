package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const triesParams = "e *float64, x *float32, n int, scale *float32, tries int, "

func tryFloat(s isa) {
	TEXT("tryFloat"+s.name, NOSPLIT, "func("+triesParams+"factor float32, rules *uint32, typ int)")
	triesBy(s, func() valuer { return newMiniFloat(s) })
}

func tryNearest(s isa) {
	TEXT("tryNearest"+s.name, NOSPLIT, "func("+triesParams+"tree, values, codes *[16]uint32, typ int)")
	triesBy(s, func() valuer { return newNearestOf(s) })
}

// triesBy writes the body of a function that sets each e to the sum of squared errors of n
// elements with a scale.
func triesBy(s isa, newValuer func() valuer) {
	Pragma("noescape")
	e, x, n, scale, tries := param("e"), param("x"), param("n"), param("scale"), param("tries")
	by := newValuer()
	eachType("", func(name string, typ numberType) {
		Label(name + "Try")
		one := s.vector()
		VBROADCASTSS(mem(scale), one)
		by.scaled(one)
		squares := []reg.VecVirtual{s.zero()}
		if !s.wide() {
			squares = append(squares, s.zero())
		}
		sums := &sums{isa: s, sqErr: squares}
		s.eachVector(name, n, func(i reg.GPVirtual, t *tail) {
			v := s.vector()
			s.load(at(x, i, 4), t, v)
			y, _ := by.value(v, one)
			s.decoded(typ, y, one)
			sums.addError(v, y, t)
		})
		sums.storeTotal(mem(e))
		ADDQ(operand.U8(8), e)
		ADDQ(operand.U8(4), scale)
		DECQ(tries)
		JNZ(operand.LabelRef(name + "Try"))
		end()
	})
}

// storeTotal stores the sum of sqErr, whose parts are added in the parent's order.
func (s *sums) storeTotal(to operand.Mem) {
	v, high := s.sqErr[0], YMM()
	if s.wide() {
		VEXTRACTF64X4(operand.U8(1), v, high)
	} else {
		high = s.sqErr[1]
	}
	low, upper := v.AsX(), XMM()
	VHADDPD(high, v.AsY(), v.AsY()) // 0+1, 4+5, 2+3, 6+7
	VEXTRACTF128(operand.U8(1), v.AsY(), upper)
	VADDPD(upper, low, low)
	VHADDPD(low, low, low)
	VMOVSD(low, to)
}
