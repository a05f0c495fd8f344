package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func exponent() operand.Mem { return constant("exponent", 0xff<<23) }

// valuer finds codes of vectors, and what these stand for.
type valuer interface {
	// scaled makes a scale the one to divide and multiply by.
	scaled(s reg.VecVirtual)

	// value returns what the codes of x with scales s stand for, which is still to be
	// multiplied by s. codes writes what makes the codes, in words; it destroys what it is
	// made of, but not the value.
	value(x, s reg.VecVirtual) (value reg.VecVirtual, codes func() reg.VecVirtual)
}

// rule is a number that a MiniFloat goes by: its place in that.
type rule int

const (
	least rule = iota
	most
	drop
	dropExp
	signDown
	negativeZero
	signless
	rules
)

// miniFloat is the parent's MiniFloat.
type miniFloat struct {
	isa
	from   reg.GPVirtual // its rules
	kept   []reg.VecVirtual
	factor reg.VecVirtual
}

func newMiniFloat(s isa) *miniFloat {
	f := &miniFloat{isa: s, from: param("rules"), factor: s.vector()}
	VBROADCASTSS(Load(Param("factor"), XMM()), f.factor)
	if s.wide() { // which has registers for all
		for r := range rules {
			f.kept = append(f.kept, f.read(r))
		}
	}
	return f
}

func (f *miniFloat) read(r rule) reg.VecVirtual {
	v := f.vector()
	VPBROADCASTD(operand.Mem{Base: f.from, Disp: 4 * int(r)}, v)
	return v
}

func (f *miniFloat) rule(r rule) reg.VecVirtual {
	if f.kept != nil {
		return f.kept[r]
	}
	return f.read(r)
}

func (f *miniFloat) scaled(s reg.VecVirtual) { VMULPS(f.factor, s, s) }

func (f *miniFloat) value(x, s reg.VecVirtual) (value reg.VecVirtual, codes func() reg.VecVirtual) {
	sum, e, power, sign := f.vector(), f.vector(), f.vector(), f.vector()
	VDIVPS(s, x, sum)
	f.and(magnitude(), sum, sum)
	VPMINUD(f.rule(most), sum, sum)
	f.and(exponent(), sum, e)
	VPMAXUD(f.rule(least), e, e)
	VPADDD(f.rule(dropExp), e, power)
	VADDPS(power, sum, sum)
	value = f.vector()
	VSUBPS(power, sum, value)
	VADDPS(f.rule(negativeZero), x, sign)
	f.and(constant("sign", 1<<31), sign, sign)
	f.or(sign, value, value)
	return value, func() reg.VecVirtual {
		code := power
		VPSUBD(power, sum, code)
		VPSUBD(f.rule(least), e, e)
		VPSRLVD(f.rule(drop), e, e)
		VPADDD(e, code, code)
		VPSRLVD(f.rule(signDown), sign, sign)
		if f.wide() {
			k := K()
			VPCMPD(operand.U8(4), f.rule(signless), code, k) // not equal
			VPORD(sign, code, k, code)
		} else {
			VPCMPEQD(f.rule(signless), code, e)
			VPANDN(sign, e, e)
			VPOR(e, code, code)
		}
		return code
	}
}

// nearestOf is the parent's Nearest.
type nearestOf struct {
	isa
	tree, values, codes reg.GPVirtual
	root, two, by       reg.VecVirtual
}

func newNearestOf(s isa) *nearestOf {
	n := &nearestOf{isa: s, tree: param("tree"), values: param("values"), codes: param("codes"), root: s.vector()}
	VBROADCASTSS(operand.Mem{Base: n.tree, Disp: 4}, n.root)
	n.two = s.all(2)
	return n
}

// scaled keeps the number to divide by: s, or 1 where that is 0.
func (n *nearestOf) scaled(s reg.VecVirtual) {
	n.by = n.vector()
	n.divisor(s, n.by)
}

func (n *nearestOf) value(x, s reg.VecVirtual) (value reg.VecVirtual, codes func() reg.VecVirtual) {
	v, node := n.vector(), n.vector()
	VDIVPS(n.by, x, v)
	n.above(v, n.root, n.two, node)
	for level := 1; level < 4; level++ {
		limit := n.vector()
		half := operand.Mem{Base: n.tree}
		if level == 3 && !n.wide() {
			half.Disp = 32 // eight a vector, and the lowest three bits are what counts
		}
		VPERMPS(half, node, limit)
		VPADDD(node, node, node)
		n.above(v, limit, node, node)
	}
	return n.look(n.values, node), func() reg.VecVirtual { return n.look(n.codes, node) }
}

// divisor sets d to s, or to 1 where that is 0.
func (n *nearestOf) divisor(s, d reg.VecVirtual) {
	one := constant("oneFloat", 0x3f800000)
	zero := n.vector()
	n.xor(zero, zero, zero)
	if n.wide() {
		k := K()
		VCMPPS(operand.U8(0), zero, s, k)
		VBLENDMPS(one, s, k, d)
		return
	}
	VCMPPS(operand.U8(0), zero, s, zero)
	VBLENDVPS(zero, one, s, d)
}

// above sets dst to node, plus 1 where v is above the limit.
func (n *nearestOf) above(v, limit, node, dst reg.VecVirtual) {
	const greater = 0x1e
	if n.wide() {
		k := K()
		VCMPPS(operand.U8(greater), limit, v, k)
		if dst != node {
			VMOVDQA32(node, dst)
		}
		VPADDD(constant("one", 1), dst, k, dst)
		return
	}
	yes := n.vector()
	VCMPPS(operand.U8(greater), limit, v, yes)
	VPSUBD(yes, node, dst)
}

// look looks the low four bits of i up in a table.
func (n *nearestOf) look(table reg.GPVirtual, i reg.VecVirtual) reg.VecVirtual {
	v := n.vector()
	VPERMPS(mem(table), i, v)
	if !n.wide() {
		upper, which := n.vector(), n.vector()
		VPERMPS(operand.Mem{Base: table, Disp: 32}, i, upper)
		VPSLLD(operand.U8(28), i, which)
		VBLENDVPS(which, upper, v, v)
	}
	return v
}

// finish writes the codes of the elements x with scales s and adds up errors.
func finish(s isa, name string, by valuer, typ numberType, sums *sums, q operand.Mem, x elements, scale reg.VecVirtual, t *tail) {
	v, codes := by.value(x.vector, scale)
	s.storeBytes(name, s.lowBytes(codes()), t, q)
	s.decoded(typ, v, scale)
	sums.add(x, v, t)
}

// decoded makes v, the value of a code, what the code stands for.
func (s isa) decoded(typ numberType, v, scale reg.VecVirtual) {
	VMULPS(scale, v, v)
	switch typ {
	case float16Type:
		s.roundFloat16(v)
	case bfloat16Type:
		s.nearest(v, 16)
	}
}

const (
	floatParams   = "rules *uint32, typ int, "
	nearestParams = "tree, values, codes *[16]uint32, typ int, "
)

func quantizeFloatBlocks(s isa) {
	TEXT("quantizeFloatBlocks"+s.name, NOSPLIT,
		"func(q *byte, x, scale *float32, factor float32, n, block int, "+floatParams+sumsParams+")")
	blocksBy(s, func() valuer { return newMiniFloat(s) })
}

func quantizeFloatColumns(s isa) {
	TEXT("quantizeFloatColumns"+s.name, NOSPLIT,
		"func(q *byte, x, scale *float32, factor float32, n, rows int, "+floatParams+sumsParams+")")
	columnsBy(s, func() valuer { return newMiniFloat(s) })
}

func quantizeNearestBlocks(s isa) {
	TEXT("quantizeNearestBlocks"+s.name, NOSPLIT,
		"func(q *byte, x, scale *float32, n, block int, "+nearestParams+sumsParams+")")
	blocksBy(s, func() valuer { return newNearestOf(s) })
}

func quantizeNearestColumns(s isa) {
	TEXT("quantizeNearestColumns"+s.name, NOSPLIT,
		"func(q *byte, x, scale *float32, n, rows int, "+nearestParams+sumsParams+")")
	columnsBy(s, func() valuer { return newNearestOf(s) })
}

// blocksBy writes the body of a function that quantizes blocks.
func blocksBy(s isa, newValuer func() valuer) {
	Pragma("noescape")
	q, x, scale, n, block := param("q"), param("x"), param("scale"), param("n"), param("block")
	by, sums := newValuer(), loadSums(s)
	eachType("", func(name string, typ numberType) {
		eachBlock(name, n, block, func(length reg.GPVirtual) {
			one := s.vector()
			VBROADCASTSS(mem(scale), one)
			by.scaled(one)
			s.eachVector(name, length, func(i reg.GPVirtual, t *tail) {
				finish(s, name, by, typ, sums, at(q, i, 1), s.elements(at(x, i, 4), t), one, t)
			})
			ADDQ(operand.U8(4), scale)
			ADDQ(length, q)
			LEAQ(at(x, length, 4), x)
		})
		sums.store()
		end()
	})
}

// columnsBy writes the body of a function that quantizes columns.
func columnsBy(s isa, newValuer func() valuer) {
	Pragma("noescape")
	q, x, scale, n, rows := param("q"), param("x"), param("scale"), param("n"), param("rows")
	by, sums := newValuer(), loadSums(s)
	eachType("", func(name string, typ numberType) {
		eachRow(name, x, n, rows, func() {
			s.eachVector(name, n, func(i reg.GPVirtual, t *tail) {
				if t == nil {
					PREFETCHT0(at(x, i, 4).Offset(1024))
				}
				v, each := s.elements(at(x, i, 4), t), s.vector()
				s.load(at(scale, i, 4), t, each)
				by.scaled(each)
				finish(s, name, by, typ, sums, at(q, i, 1), v, each, t)
			})
			ADDQ(n, q)
		})
		sums.store()
		end()
	})
}
