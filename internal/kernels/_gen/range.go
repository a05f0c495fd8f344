package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const signBit = 1 << 31

func magnitude() operand.Mem { return constant("magnitude", signBit-1) }
func sign() operand.Mem      { return constant("sign", signBit) }

func absMaxBlocks(s isa) {
	TEXT("absMaxBlocks"+s.name, NOSPLIT, "func(acc, x *float32, n, block int)")
	Pragma("noescape")
	acc, x, n, block := param("acc"), param("x"), param("n"), param("block")
	abs := s.all(signBit - 1)
	eachBlock("", n, block, func(length reg.GPVirtual) {
		m := s.first(mem(acc))
		s.and(abs, m, m)
		s.eachVector("", length, func(i reg.GPVirtual, t *tail) {
			v := s.vector()
			if t == nil {
				s.and(at(x, i, 4), abs, v)
			} else {
				s.load(at(x, i, 4), t, v)
				s.and(abs, v, v)
			}
			VPMAXUD(v, m, m)
		})
		s.reduce(VPMAXUD, m)
		VMOVD(m.AsX(), mem(acc))
		ADDQ(operand.U8(4), acc)
		LEAQ(at(x, length, 4), x)
	})
	end()
}

func rangeBlocks(s isa) {
	TEXT("rangeBlocks"+s.name, NOSPLIT, "func(lo, hi, x *float32, n, block int)")
	Pragma("noescape")
	lo, hi, x, n, block := param("lo"), param("hi"), param("x"), param("n"), param("block")
	minus := s.all(signBit)
	eachBlock("", n, block, func(length reg.GPVirtual) {
		down, up := s.first(mem(lo)), s.first(mem(hi))
		s.and(magnitude(), down, down)
		s.and(magnitude(), up, up)
		s.eachVector("", length, func(i reg.GPVirtual, t *tail) {
			s.widen(at(x, i, 4), t, minus, down, up)
		})
		s.reduce(VPMAXSD, down)
		s.reduce(VPMAXSD, up)
		VPOR(minus.AsX(), down.AsX(), down.AsX())
		VMOVD(down.AsX(), mem(lo))
		VMOVD(up.AsX(), mem(hi))
		ADDQ(operand.U8(4), lo)
		ADDQ(operand.U8(4), hi)
		LEAQ(at(x, length, 4), x)
	})
	end()
}

// widen widens a range, kept as in the parent package, by a vector. Zeros in the
// place of what a tail leaves out do not change a range.
func (s isa) widen(m operand.Mem, t *tail, minus, down, up reg.VecVirtual) {
	v := s.vector()
	s.load(m, t, v)
	VPMAXSD(v, up, up)
	s.xor(minus, v, v)
	VPMAXSD(v, down, down)
}

// groupRows is how many rows the loops over columns take at a time, so as to
// load and store what belongs to the columns less often.
const groupRows = 4

// eachGroup writes loops over rows of n elements, first by groups, then one by
// one. The body gets the places of the rows' first elements and a name.
func eachGroup(x, n, rows reg.GPVirtual, body func(name string, rows []reg.GPVirtual)) {
	group := []reg.GPVirtual{x}
	for range groupRows - 1 {
		group = append(group, GP64())
	}
	SUBQ(operand.U8(groupRows), rows)
	JLT(operand.LabelRef("single"))
	Label("group")
	for i := range groupRows - 1 {
		LEAQ(at(group[i], n, 4), group[i+1])
	}
	body("group", group)
	LEAQ(at(group[groupRows-1], n, 4), x)
	SUBQ(operand.U8(groupRows), rows)
	JGE(operand.LabelRef("group"))
	Label("single")
	ADDQ(operand.U8(groupRows), rows)
	JZ(operand.LabelRef("done"))
	eachRow("single", x, n, rows, func() { body("single", group[:1]) })
	Label("done")
}

func absMaxColumns(s isa) {
	TEXT("absMaxColumns"+s.name, NOSPLIT, "func(acc, x *float32, n, rows int)")
	Pragma("noescape")
	acc, x, n, rows := param("acc"), param("x"), param("n"), param("rows")
	abs := s.all(signBit - 1)
	eachGroup(x, n, rows, func(name string, group []reg.GPVirtual) {
		s.eachVector(name, n, func(i reg.GPVirtual, t *tail) {
			m := s.vector()
			s.load(at(acc, i, 4), t, m)
			s.and(abs, m, m)
			for _, row := range group {
				v := s.vector()
				if t == nil {
					s.and(at(row, i, 4), abs, v)
				} else {
					s.load(at(row, i, 4), t, v)
					s.and(abs, v, v)
				}
				VPMAXUD(v, m, m)
			}
			s.store(m, t, at(acc, i, 4))
		})
	})
	end()
}

func rangeColumns(s isa) {
	TEXT("rangeColumns"+s.name, NOSPLIT, "func(lo, hi, x *float32, n, rows int)")
	Pragma("noescape")
	lo, hi, x, n, rows := param("lo"), param("hi"), param("x"), param("n"), param("rows")
	minus := s.all(signBit)
	eachGroup(x, n, rows, func(name string, group []reg.GPVirtual) {
		s.eachVector(name, n, func(i reg.GPVirtual, t *tail) {
			down, up := s.vector(), s.vector()
			s.load(at(lo, i, 4), t, down)
			s.load(at(hi, i, 4), t, up)
			s.and(magnitude(), down, down)
			s.and(magnitude(), up, up)
			for _, row := range group {
				s.widen(at(row, i, 4), t, minus, down, up)
			}
			s.or(minus, down, down)
			s.store(down, t, at(lo, i, 4))
			s.store(up, t, at(hi, i, 4))
		})
	})
	end()
}
