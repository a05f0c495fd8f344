// Command _gen writes the assembly of package kernels.
package main

import (
	"flag"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	floats := flag.Bool("floats", false, "write what quantizes to small floats and to tables, not the rest")
	ggml := flag.Bool("ggml", false, "write what package ggml needs, not the rest")
	products := flag.Bool("products", false, "write what multiplies matrices, not the rest")
	grids := flag.Bool("grids", false, "write what searches for scales of integers, not the rest")
	functions := flag.Bool("functions", false, "write functions of elements and vectors, not the rest")
	flag.Parse()
	ConstraintExpr("amd64,!purego")
	if *products {
		multiplyTile()
		for _, s := range isas {
			addMultiple(s)
		}
		Generate()
		return
	}
	if *functions {
		for _, s := range isas {
			exponentials(s)
			rationals(s)
			dots(s)
			arithmetic(s, "add", VADDPS)
			arithmetic(s, "subtract", VSUBPS)
			arithmetic(s, "multiply", VMULPS)
			arithmetic(s, "divide", VDIVPS)
			clips(s)
		}
		Generate()
		return
	}
	if *grids {
		gridSearches()
		for _, s := range isas {
			addGridErrors(s)
		}
		weighRounded()
		Generate()
		return
	}
	if *ggml {
		for _, s := range isas {
			transpose(s)
			laneWeights(s)
			affineSearch(s)
			symmetricSearch(s)
		}
		recode()
		quantizeNibbles()
		quantizeBytes()
		Generate()
		return
	}
	if *floats {
		for _, s := range isas {
			quantizeFloatBlocks(s)
			quantizeFloatColumns(s)
			quantizeNearestBlocks(s)
			quantizeNearestColumns(s)
			tryFloat(s)
			tryNearest(s)
		}
		Generate()
		return
	}
	for _, s := range isas {
		absMaxBlocks(s)
		absMaxColumns(s)
		rangeBlocks(s)
		rangeColumns(s)
		addErrors(s)
		quantizeBlocks(s)
		quantizeColumns(s)
		roundUpColumns(s)
		dequantizeRows(s)
	}
	pack4()
	pack2()
	unpack4()
	unpack2()
	fromFloat16()
	fromBFloat16()
	toFloat16()
	toBFloat16()
	hasF16C()
	Generate()
}

// isa is an instruction set: AVX2, which comes with FMA and F16C, or AVX-512
// with F, BW, DQ and VL.
type isa struct {
	name  string
	lanes int // of 32 bits
}

var isas = []isa{{"AVX2", 8}, {"AVX512", 16}}

func (s isa) wide() bool { return s.lanes == 16 }

func (s isa) vector() reg.VecVirtual {
	if s.wide() {
		return ZMM()
	}
	return YMM()
}

// half returns the lower half of v as a register.
func (s isa) half(v reg.VecVirtual) reg.Register {
	if s.wide() {
		return v.AsY()
	}
	return v.AsX()
}

// The bitwise instructions have other names in AVX-512.

func (s isa) and(a, b, dst operand.Op) {
	if s.wide() {
		VPANDD(a, b, dst)
	} else {
		VPAND(a, b, dst)
	}
}

func (s isa) or(a, b, dst operand.Op) {
	if s.wide() {
		VPORD(a, b, dst)
	} else {
		VPOR(a, b, dst)
	}
}

func (s isa) xor(a, b, dst operand.Op) {
	if s.wide() {
		VPXORD(a, b, dst)
	} else {
		VPXOR(a, b, dst)
	}
}

// all returns a vector of one number.
func (s isa) all(bits uint32) reg.VecVirtual {
	r := GP32()
	MOVL(operand.U32(bits), r)
	return s.broadcast(r)
}

func (s isa) broadcast(r reg.Register) reg.VecVirtual {
	x, v := XMM(), s.vector()
	VMOVD(r, x)
	VPBROADCASTD(x, v)
	return v
}

// broadcastByte returns the low byte of r in all bytes of an XMM register.
func broadcastByte(r reg.Register) reg.VecVirtual {
	x := XMM()
	VMOVD(r, x)
	VPBROADCASTB(x, x)
	return x
}

// first returns a vector of a number in memory followed by zeros.
func (s isa) first(m operand.Mem) reg.VecVirtual {
	v := s.vector()
	VMOVD(m, v.AsX())
	return v
}

// reduce applies op to all lanes of v and leaves the result in lane 0.
func (s isa) reduce(op func(ops ...operand.Op), v reg.VecVirtual) {
	x := v.AsX()
	t := YMM()
	if s.wide() {
		VEXTRACTI64X4(operand.U8(1), v, t)
		op(t, v.AsY(), v.AsY())
	}
	VEXTRACTI128(operand.U8(1), v.AsY(), t.AsX())
	op(t.AsX(), x, x)
	VPSHUFD(operand.U8(0x4e), x, t.AsX())
	op(t.AsX(), x, x)
	VPSHUFD(operand.U8(0xb1), x, t.AsX())
	op(t.AsX(), x, x)
}

// tail selects the first lanes of a vector.
type tail struct {
	n    reg.GPVirtual // how many
	k    reg.Register  // AVX-512: their mask
	mask operand.Mem   // AVX2: a vector of all ones or zeros
	less reg.GPVirtual // AVX2: -n
}

// newTail selects n lanes, fewer than all.
func (s isa) newTail(n reg.GPVirtual) *tail {
	if s.wide() {
		ones, k := GP32(), K()
		MOVL(operand.U32(1<<32-1), ones)
		BZHIL(n.As32(), ones, ones)
		KMOVW(ones, k)
		return &tail{n: n, k: k}
	}
	masks, less := GP64(), GP64()
	LEAQ(tailMasks().Offset(32), masks)
	MOVQ(n, less)
	NEGQ(less)
	return &tail{n: n, mask: operand.Mem{Base: masks, Index: less, Scale: 4}, less: less}
}

// load loads floats, only those of a tail if it is not nil and zeros besides.
func (s isa) load(m operand.Mem, t *tail, v reg.VecVirtual) {
	switch {
	case t == nil:
		VMOVUPS(m, v)
	case s.wide():
		VMOVUPS_Z(m, t.k, v)
	default:
		mask := YMM()
		VMOVUPS(t.mask, mask)
		VMASKMOVPS(m, mask, v)
	}
}

func (s isa) store(v reg.VecVirtual, t *tail, m operand.Mem) {
	switch {
	case t == nil:
		VMOVUPS(v, m)
	case s.wide():
		VMOVUPS(v, t.k, m)
	default:
		mask := YMM()
		VMOVUPS(t.mask, mask)
		VMASKMOVPS(v, mask, m)
	}
}

// keep makes the lanes beyond a tail zero.
func (s isa) keep(t *tail, v reg.VecVirtual) {
	switch {
	case t == nil:
	case s.wide():
		VMOVAPS_Z(v, t.k, v)
	default:
		VPAND(t.mask, v, v)
	}
}

// param loads a parameter of 64 bits.
func param(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

// at is element i from p on. An element has size bytes.
func at(p, i reg.Register, size uint8) operand.Mem {
	return operand.Mem{Base: p, Index: i, Scale: size}
}

func mem(p reg.Register) operand.Mem { return operand.Mem{Base: p} }

// eachBlock writes a loop over the blocks of n elements. The body gets a block's
// length. It destroys n. name keeps the labels of several loops apart, here and
// below.
func eachBlock(name string, n, block reg.GPVirtual, body func(length reg.GPVirtual)) {
	Label(name + "Block")
	length := GP64()
	MOVQ(block, length)
	CMPQ(n, length)
	CMOVQLT(n, length)
	SUBQ(length, n)
	body(length)
	TESTQ(n, n)
	JNZ(operand.LabelRef(name + "Block"))
}

// eachRow writes a loop over rows of n elements of x. It destroys rows.
func eachRow(name string, x, n, rows reg.GPVirtual, body func()) {
	Label(name + "Row")
	body()
	LEAQ(at(x, n, 4), x)
	DECQ(rows)
	JNZ(operand.LabelRef(name + "Row"))
}

// eachVector writes a loop over the vectors of length elements. The body gets
// the number of a vector's first element and, if there are not enough for a
// whole one, a tail.
func (s isa) eachVector(name string, length reg.GPVirtual, body func(i reg.GPVirtual, t *tail)) {
	i, last := GP64(), GP64()
	XORQ(i, i)
	LEAQ(operand.Mem{Base: length, Disp: -s.lanes}, last)
	CMPQ(i, last)
	JGT(operand.LabelRef(name + "Rest"))
	Label(name + "Vector")
	body(i, nil)
	ADDQ(operand.U8(s.lanes), i)
	CMPQ(i, last)
	JLE(operand.LabelRef(name + "Vector"))
	Label(name + "Rest")
	rest := GP64()
	MOVQ(length, rest)
	SUBQ(i, rest)
	JZ(operand.LabelRef(name + "End"))
	body(i, s.newTail(rest))
	Label(name + "End")
}

// end returns from a function.
func end() {
	VZEROUPPER()
	RET()
}

var constants = map[string]operand.Mem{}

// constant is a vector of one number in memory.
func constant(name string, bits uint32) operand.Mem {
	m, ok := constants[name]
	if !ok {
		m = GLOBL(name, attr.RODATA|attr.NOPTR)
		for i := range 16 {
			DATA(4*i, operand.U32(bits))
		}
		constants[name] = m
	}
	return m
}

// tailMasks is eight words of ones and eight of zeros.
func tailMasks() operand.Mem {
	m, ok := constants["tailMasks"]
	if !ok {
		m = GLOBL("tailMasks", attr.RODATA|attr.NOPTR)
		for i := range 16 {
			word := uint32(0)
			if i < 8 {
				word = 1<<32 - 1
			}
			DATA(4*i, operand.U32(word))
		}
		constants["tailMasks"] = m
	}
	return m
}
