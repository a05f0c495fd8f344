package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// exponentials computes the exponentials of x, in the steps of the Go function.
func exponentials(s isa) {
	TEXT("exp"+s.name, NOSPLIT, "func(y, x *float32, n int)")
	Pragma("noescape")
	number := func(name string, v float32) operand.Mem { return constant("exp"+name, math.Float32bits(v)) }
	most, least := s.float(89), s.float(-104)
	y, x, n := param("y"), param("x"), param("n")
	s.eachVector("", n, func(i reg.GPVirtual, t *tail) {
		v, whole, shifted, sum, product := s.vector(), s.vector(), s.vector(), s.vector(), s.vector()
		s.load(at(x, i, 4), t, v)
		VMINPS(v, most, v)
		VMAXPS(v, least, v)
		VMULPS(number("Log2", math.Log2E), v, shifted)
		VADDPS(number("Whole", 3<<22), shifted, shifted)
		VSUBPS(number("Whole", 3<<22), shifted, whole)
		VMULPS(number("Ln2", 0.693359375), whole, product)
		VSUBPS(product, v, v)
		VMULPS(number("Ln2Rest", -2.12194440e-4), whole, product)
		VSUBPS(product, v, v)
		VMULPS(number("Term0", 1.9875691500e-4), v, sum)
		for k, term := range []float32{1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1} {
			VADDPS(number("Term"+string(rune('1'+k)), term), sum, sum)
			VMULPS(v, sum, sum)
		}
		VMULPS(v, sum, sum)
		VADDPS(v, sum, sum)
		VADDPS(number("One", 1), sum, sum)
		VPSUBD(number("Whole", 3<<22), shifted, shifted)
		VPSRAD(operand.U8(1), shifted, whole)
		VPSUBD(whole, shifted, shifted)
		for _, half := range []reg.VecVirtual{whole, shifted} {
			VPADDD(constant("expBias", 127), half, half)
			VPSLLD(operand.U8(23), half, half)
			VMULPS(half, sum, sum)
		}
		s.store(sum, t, at(y, i, 4))
	})
	end()
}

// arithmetic combines pairs of elements by one instruction.
func arithmetic(s isa, name string, instruction func(ops ...operand.Op)) {
	TEXT(name+s.name, NOSPLIT, "func(y, a, b *float32, n int)")
	Pragma("noescape")
	y, a, b, n := param("y"), param("a"), param("b"), param("n")
	s.eachVector("", n, func(i reg.GPVirtual, t *tail) {
		v, w := s.vector(), s.vector()
		s.load(at(a, i, 4), t, v)
		s.load(at(b, i, 4), t, w)
		instruction(w, v, v)
		s.store(v, t, at(y, i, 4))
	})
	end()
}

// clips limits elements to a range.
func clips(s isa) {
	TEXT("clip"+s.name, NOSPLIT, "func(y, x *float32, n int, least, most float32)")
	Pragma("noescape")
	least, most := s.floatParam("least"), s.floatParam("most")
	y, x, n := param("y"), param("x"), param("n")
	s.eachVector("", n, func(i reg.GPVirtual, t *tail) {
		v := s.vector()
		s.load(at(x, i, 4), t, v)
		VMAXPS(v, least, v)
		VMINPS(v, most, v)
		s.store(v, t, at(y, i, 4))
	})
	end()
}

// rationals computes an odd rational function, whose limit and coefficients are at f.
func rationals(s isa) {
	TEXT("rational"+s.name, NOSPLIT, "func(y, x *float32, n int, f *float32)")
	Pragma("noescape")
	y, x, n, f := param("y"), param("x"), param("n"), param("f")
	coefficient := func(i int) reg.VecVirtual { return s.broadcastFloat(operand.Mem{Base: f, Disp: 4 * i}) }
	limit, lower, one, minus := coefficient(0), s.zero(), s.float(1), s.float(-1)
	VSUBPS(limit, lower, lower)
	s.eachVector("", n, func(i reg.GPVirtual, t *tail) {
		v, square := s.vector(), s.vector()
		s.load(at(x, i, 4), t, v)
		VMINPS(v, limit, v)
		VMAXPS(v, lower, v)
		VMULPS(v, v, square)
		p, q := coefficient(1), coefficient(7)
		for k := 1; k < 6; k++ {
			VMULPS(square, p, p)
			VADDPS(coefficient(1+k), p, p)
			VMULPS(square, q, q)
			VADDPS(coefficient(7+k), q, q)
		}
		VMULPS(p, v, v)
		VDIVPS(q, v, v)
		VMINPS(v, one, v)
		VMAXPS(v, minus, v)
		s.store(v, t, at(y, i, 4))
	})
	end()
}

// dots computes the sum of products. Product k is added to sum k%32 of 32, whose halves are then added up until one is left.
func dots(s isa) {
	TEXT("dot"+s.name, NOSPLIT, "func(x, y *float32, n int) float32")
	Pragma("noescape")
	x, y, n := param("x"), param("y"), param("n")
	totals := make([]reg.VecVirtual, 32/s.lanes)
	for i := range totals {
		totals[i] = s.zero()
	}
	product, factor := s.vector(), s.vector()
	add := func(disp int, t *tail, total reg.VecVirtual) {
		s.load(operand.Mem{Base: x, Disp: disp}, t, product)
		if t == nil {
			VMULPS(operand.Mem{Base: y, Disp: disp}, product, product)
		} else {
			s.load(operand.Mem{Base: y, Disp: disp}, t, factor)
			VMULPS(factor, product, product)
		}
		VADDPS(product, total, total)
	}
	SUBQ(operand.U32(32), n)
	JLT(operand.LabelRef("rest"))
	Label("next")
	for i, total := range totals {
		add(4*s.lanes*i, nil, total)
	}
	ADDQ(operand.U32(128), x)
	ADDQ(operand.U32(128), y)
	SUBQ(operand.U32(32), n)
	JGE(operand.LabelRef("next"))
	Label("rest")
	ADDQ(operand.U32(32), n)
	JZ(operand.LabelRef("sum"))
	for i, total := range totals {
		part := fmt.Sprint("part", i)
		CMPQ(n, operand.U32(uint32(s.lanes)))
		JLT(operand.LabelRef(part))
		add(4*s.lanes*i, nil, total)
		SUBQ(operand.U32(uint32(s.lanes)), n)
		JMP(operand.LabelRef(fmt.Sprint("after", i)))
		Label(part)
		add(4*s.lanes*i, s.newTail(n), total)
		JMP(operand.LabelRef("sum"))
		Label(fmt.Sprint("after", i))
	}
	Label("sum")
	for n := len(totals) / 2; n > 0; n /= 2 {
		for i := range n {
			VADDPS(totals[i+n], totals[i], totals[i])
		}
	}
	s.reduce(VADDPS, totals[0])
	result := XMM()
	VMOVAPS(totals[0].AsX(), result)
	VZEROUPPER()
	Store(result, ReturnIndex(0))
	RET()
}
