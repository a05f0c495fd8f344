package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// gridRow is the size of what 16 blocks side by side have one of.
const gridRow = 64

// mostGridTries is the most that the parent's GridTries returns.
const mostGridTries = 16

// The fields of the parent's GridSearch, each with a number for each block.
const (
	perUnit = iota
	firstInverse
	distance
	middle
	slope
	bestInverse
	bestZero
	sumXX
	sumXQ
	sumQQ
	mostXQ
	tryInverse0
	tryZero0
	tryInverse1
	tryZero1
)

// floats is a table of numbers in memory.
func floats(name string, values ...float32) operand.Mem {
	m := GLOBL(name, attr.RODATA|attr.NOPTR)
	for i, v := range values {
		DATA(4*i, operand.U32(math.Float32bits(v)))
	}
	return m
}

// gridSearch writes the parent's GridSearch.findGo, for as many blocks as there are lanes.
type gridSearch struct {
	isa
	fields, x, rows reg.GPVirtual
	tables          map[string]operand.Mem
}

func gridSearches() {
	tables := map[string]operand.Mem{}
	var inverses []float32
	for i := range mostGridTries {
		inverses = append(inverses, 0.5+float32(i))
	}
	tables["inverses"] = floats("gridInverses", inverses...)
	tables["moves"] = floats("gridMoves", 0, -1, 1)
	tables["rounds"] = floats("gridRounds", 1, 0.25)
	tables["around"] = floats("gridAround", 0.25, 0.5, 0.75)
	for _, s := range isas {
		TEXT("gridSearch"+s.name, NOSPLIT, "func(fields, x *float32, rows, moves, tries, rounds int, steps, leastZero, toZero float32)")
		Pragma("noescape")
		g := &gridSearch{isa: s, fields: param("fields"), x: param("x"), rows: param("rows"), tables: tables}
		g.squares()
		g.first()
		g.beside()
		g.around()
		end()
	}
}

// field is where a field is.
func (g *gridSearch) field(i int) operand.Mem { return operand.Mem{Base: g.fields, Disp: gridRow * i} }

// eachGridRow writes a loop over elements side by side.
func eachGridRow(name string, x, rows reg.GPVirtual, body func(x operand.Mem)) {
	p, n := GP64(), GP64()
	MOVQ(x, p)
	MOVQ(rows, n)
	Label(name)
	body(mem(p))
	ADDQ(operand.U8(gridRow), p)
	DECQ(n)
	JNZ(operand.LabelRef(name))
}

// eachOf writes a loop over the first numbers of a table, step at a time.
func (g *gridSearch) eachOf(table string, n operand.Op, step int, body func(number operand.Mem)) {
	p, i := GP64(), GP64()
	LEAQ(g.tables[table], p)
	XORQ(i, i)
	Label(table)
	body(at(p, i, 4))
	ADDQ(operand.U8(step), i)
	CMPQ(i, n)
	JLT(operand.LabelRef(table))
}

// number returns a vector of a parameter, loaded at once: there are more vectors than MOVSS knows.
func (g *gridSearch) number(name string) reg.VecVirtual {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return g.broadcastFloat(p.Addr)
}

func (g *gridSearch) squares() {
	sum, unit := g.zero(), g.loaded(g.field(perUnit))
	eachGridRow("squares", g.x, g.rows, func(x operand.Mem) {
		v := g.vector()
		VMULPS(x, unit, v)
		VMULPS(v, v, v)
		VADDPS(v, sum, sum)
	})
	VMOVUPS(sum, g.field(sumXX))
}

func (g *gridSearch) first() {
	moves, tries := param("moves"), param("tries")
	g.eachOf("moves", moves, 1, func(move operand.Mem) {
		g.eachOf("inverses", tries, 2, func(number operand.Mem) {
			for i, field := range []int{tryInverse0, tryInverse1} {
				t := g.broadcastFloat(number.Offset(4 * i))
				VMULPS(g.field(distance), t, t)
				VADDPS(g.field(firstInverse), t, t)
				VMOVUPS(t, g.field(field))
				z := g.loaded(g.field(middle))
				VMULPS(g.field(slope), t, t)
				VSUBPS(t, z, z)
				g.integer(z)
				VADDPS(g.broadcastFloat(move), z, z)
				g.setZero(z, field+1)
			}
			g.try("first")
		})
	})
}

// integer rounds v to integers, ties to even.
func (g *gridSearch) integer(v reg.VecVirtual) {
	if g.wide() {
		VRNDSCALEPS(operand.U8(8), v, v)
	} else {
		VROUNDPS(operand.U8(8), v, v)
	}
}

// setZero sets a field to a zero point within its limits.
func (g *gridSearch) setZero(z reg.VecVirtual, field int) {
	VMAXPS(g.number("leastZero"), z, z)
	VMINPS(g.number("toZero"), z, z)
	VMOVUPS(z, g.field(field))
}

func (g *gridSearch) beside() {
	t := g.loaded(g.field(bestInverse))
	for i, field := range []int{tryInverse0, tryInverse1} {
		VMOVUPS(t, g.field(field))
		z := g.float(float32(2*i - 1))
		VADDPS(g.field(bestZero), z, z)
		g.setZero(z, field+1)
	}
	g.try("beside")
}

func (g *gridSearch) around() {
	center, rounds := AllocLocal(4*g.lanes), param("rounds")
	g.eachOf("rounds", rounds, 1, func(part operand.Mem) {
		VMOVUPS(g.loaded(g.field(bestInverse)), center)
		g.eachOf("around", operand.U8(3), 1, func(off operand.Mem) {
			d, z := g.broadcastFloat(off), g.loaded(g.field(bestZero))
			VMULPS(g.broadcastFloat(part), d, d)
			VMULPS(g.field(distance), d, d)
			t := g.loaded(center)
			VSUBPS(d, t, t)
			VMOVUPS(t, g.field(tryInverse0))
			VADDPS(center, d, d)
			VMOVUPS(d, g.field(tryInverse1))
			VMOVUPS(z, g.field(tryZero0))
			VMOVUPS(z, g.field(tryZero1))
			g.try("nearest")
		})
	})
}

// try keeps what of two tries is better than all before.
func (g *gridSearch) try(name string) {
	fields := []int{tryInverse0, tryInverse1}
	var inverse, from, to, xq, qq [2]reg.VecVirtual
	for i, field := range fields {
		inverse[i], from[i], to[i] = g.loaded(g.field(field)), g.zero(), g.number("steps")
		VMULPS(g.field(perUnit), inverse[i], inverse[i])
		VSUBPS(g.field(field+1), from[i], from[i])
		VSUBPS(g.field(field+1), to[i], to[i])
		xq[i], qq[i] = g.zero(), g.zero()
	}
	eachGridRow(name+"Row", g.x, g.rows, func(x operand.Mem) {
		v := g.loaded(x)
		for i := range fields {
			q, t := g.vector(), g.vector()
			VMULPS(inverse[i], v, q)
			g.integer(q)
			VMAXPS(from[i], q, q)
			VMINPS(to[i], q, q)
			VMULPS(q, v, t)
			VADDPS(t, xq[i], xq[i])
			VFMADD231PS(q, q, qq[i])
		}
	})
	for i, field := range fields {
		c := g.vector()
		VMULPS(g.field(perUnit), xq[i], xq[i])
		VMULPS(xq[i], xq[i], c)
		VDIVPS(qq[i], c, c)
		better := g.compare(c, greater, g.loaded(g.field(mostXQ)))
		keep := func(v reg.VecVirtual, field int) {
			old := g.loaded(g.field(field))
			g.choose(better, v, old)
			VMOVUPS(old, g.field(field))
		}
		keep(c, mostXQ)
		keep(xq[i], sumXQ)
		keep(qq[i], sumQQ)
		keep(g.loaded(g.field(field)), bestInverse)
		keep(g.loaded(g.field(field+1)), bestZero)
	}
}

// addGridErrors adds up the errors of blocks side by side. least and greatest limit the magic sums.
func addGridErrors(s isa) {
	TEXT("addGridErrors"+s.name, NOSPLIT, "func(e *float64, x *float32, rows int, grid, scale *float32, least, greatest *int32, typ int)")
	Pragma("noescape")
	e, x, rows := param("e"), param("x"), param("rows")
	grid, scale := s.loaded(mem(param("grid"))), s.loaded(mem(param("scale")))
	least, greatest := s.loaded(mem(param("least"))), s.loaded(mem(param("greatest")))
	magic := s.loaded(magic())
	upperE := operand.Mem{Base: e, Disp: 4 * s.lanes}
	low, high := s.loaded(mem(e)), s.loaded(upperE)
	eachType("", func(name string, typ numberType) {
		eachGridRow(name+"Row", x, rows, func(x operand.Mem) {
			v, y := s.loaded(x), s.vector()
			VDIVPS(grid, v, y)
			if typ == float16Type {
				s.nearest(y, 13)
			}
			VADDPS(magic, y, y)
			VPMAXSD(least, y, y)
			VPMINSD(greatest, y, y)
			VSUBPS(magic, y, y)
			VMULPS(scale, y, y)
			switch typ {
			case float16Type:
				s.roundFloat16(y)
			case bfloat16Type:
				s.nearest(y, 16)
			}
			for i, sum := range []reg.VecVirtual{low, high} {
				d, t := s.vector(), s.vector()
				s.toFloat64(v, i, d)
				s.toFloat64(y, i, t)
				VSUBPD(t, d, d)
				VMULPD(d, d, d)
				VADDPD(d, sum, sum)
			}
		})
		VMOVUPD(low, mem(e))
		VMOVUPD(high, upperE)
		end()
	})
}

// toFloat64 sets to to half of the floats of v.
func (s isa) toFloat64(v reg.VecVirtual, half int, to reg.VecVirtual) {
	switch {
	case half == 0:
		VCVTPS2PD(s.half(v), to)
	case s.wide():
		VEXTRACTF64X4(operand.U8(1), v, s.half(to))
		VCVTPS2PD(s.half(to), to)
	default:
		VEXTRACTF128(operand.U8(1), v, s.half(to))
		VCVTPS2PD(s.half(to), to)
	}
}

// weighRounded adds up weighted products of elements and codes, and of codes and codes, of blocks side by side.
func weighRounded() {
	s := isas[0]
	TEXT("weighRoundedAVX2", NOSPLIT, "func(xq, qq *float64, x *float32, weights *float64, rows int, inverse, least, greatest *float32)")
	Pragma("noescape")
	x, weights, rows := param("x"), param("weights"), param("rows")
	inverse := s.loaded(mem(param("inverse")))
	least, greatest := s.loaded(mem(param("least"))), s.loaded(mem(param("greatest")))
	xq, qq := [2]reg.VecVirtual{s.zero(), s.zero()}, [2]reg.VecVirtual{s.zero(), s.zero()}
	eachGridRow("row", x, rows, func(x operand.Mem) {
		q, weight := s.vector(), s.vector()
		VMULPS(x, inverse, q)
		VROUNDPS(operand.U8(8), q, q)
		VMAXPS(least, q, q)
		VMINPS(greatest, q, q)
		VBROADCASTSD(mem(weights), weight)
		for i := range xq {
			v, code, weighted := s.vector(), s.vector(), s.vector()
			s.toFloat64(q, i, code)
			VCVTPS2PD(x.Offset(16*i), v)
			VMULPD(code, weight, weighted)
			VMULPD(weighted, v, v)
			VADDPD(v, xq[i], xq[i])
			VMULPD(weighted, code, code)
			VADDPD(code, qq[i], qq[i])
		}
		ADDQ(operand.U8(8), weights)
	})
	toXQ, toQQ := param("xq"), param("qq")
	for i := range xq {
		VMOVUPD(xq[i], operand.Mem{Base: toXQ, Disp: 32 * i})
		VMOVUPD(qq[i], operand.Mem{Base: toQQ, Disp: 32 * i})
	}
	end()
}
