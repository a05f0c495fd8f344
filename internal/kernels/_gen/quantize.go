package main

import (
	"strconv"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// numberType is the parent package's Type.
type numberType int

const (
	float32Type numberType = iota
	float16Type
	bfloat16Type
)

func (t numberType) String() string { return []string{"float32", "float16", "bfloat16"}[t] }

// eachType writes the loops of a function for each type. The parameter typ
// selects one. name keeps labels apart.
func eachType(name string, loops func(name string, t numberType)) {
	typ := param("typ")
	types := []numberType{float16Type, bfloat16Type, float32Type}
	for _, t := range types {
		if t == float32Type {
			loops(name+t.String(), t)
			continue
		}
		CMPQ(typ, operand.U8(t))
		JNE(operand.LabelRef(name + "Not" + t.String()))
		loops(name+t.String(), t)
		Label(name + "Not" + t.String())
	}
}

const magicBits = 0x4b400000

func magic() operand.Mem { return constant("magic", magicBits) }

// lowBytes moves the low bytes of four words to the front of a lane.
func lowBytes() operand.Mem { return constant("lowBytes", 0x0c080400) }

// sums is an ErrorSums in registers.
type sums struct {
	isa
	sqErr, sq []reg.VecVirtual // 8 float64 each
	maxAbs    reg.VecVirtual
}

// elements are a vector and the memory that it was loaded from.
type elements struct {
	vector reg.VecVirtual
	from   operand.Mem
}

func (s isa) elements(from operand.Mem, t *tail) elements {
	v := s.vector()
	s.load(from, t, v)
	return elements{v, from}
}

const sumsParams = "sqErr, sq *[8]float64, maxAbs *uint32"

// loadSums loads the sums that the function's parameters name.
func loadSums(s isa) *sums {
	load := func(name string) []reg.VecVirtual {
		p := param(name)
		var parts []reg.VecVirtual
		for i := 0; i < 8; i += s.lanes / 2 {
			v := s.vector()
			VMOVUPD(operand.Mem{Base: p, Disp: 8 * i}, v)
			parts = append(parts, v)
		}
		return parts
	}
	return &sums{s, load("sqErr"), load("sq"), s.first(mem(param("maxAbs")))}
}

func (s *sums) store() {
	store := func(name string, parts []reg.VecVirtual) {
		p := param(name)
		for i, v := range parts {
			VMOVUPD(v, operand.Mem{Base: p, Disp: 4 * s.lanes * i})
		}
	}
	store("sqErr", s.sqErr)
	store("sq", s.sq)
	s.reduce(VPMAXUD, s.maxAbs)
	VMOVD(s.maxAbs.AsX(), mem(param("maxAbs")))
}

// add adds the errors of y, the elements x stand for. It destroys y.
func (s *sums) add(x elements, y reg.VecVirtual, t *tail) {
	s.addError(x.vector, y, t)
	if t == nil { // converting from memory takes no instruction for the upper half
		s.addHalves(s.sq, x.from, x.from.Offset(2*s.lanes))
	} else {
		s.addSquares(s.sq, x.vector)
	}
	s.and(magnitude(), y, y)
	VPMAXUD(y, s.maxAbs, s.maxAbs)
}

// addError makes y its error, and adds the square.
func (s *sums) addError(x, y reg.VecVirtual, t *tail) {
	VSUBPS(y, x, y)
	s.keep(t, y)
	s.addSquares(s.sqErr, y)
}

// addSquares adds the squares of v.
func (s *sums) addSquares(parts []reg.VecVirtual, v reg.VecVirtual) {
	upper := s.vector()
	if s.wide() {
		VEXTRACTF64X4(operand.U8(1), v, s.half(upper))
	} else {
		VEXTRACTF128(operand.U8(1), v, s.half(upper))
	}
	s.addHalves(parts, s.half(v), s.half(upper))
}

// addHalves adds the squares of a vector, lower half first. They are exact, so that fusing
// changes nothing.
func (s *sums) addHalves(parts []reg.VecVirtual, lower, upper operand.Op) {
	add := func(half operand.Op, part reg.VecVirtual) {
		d := s.vector()
		VCVTPS2PD(half, d)
		VFMADD231PD(d, d, part)
	}
	add(lower, parts[0])
	add(upper, parts[len(parts)-1])
}

func addErrors(s isa) {
	TEXT("addErrors"+s.name, NOSPLIT, "func(x, y *float32, n int, "+sumsParams+")")
	Pragma("noescape")
	x, y, n := param("x"), param("y"), param("n")
	sums := loadSums(s)
	s.eachVector("", n, func(i reg.GPVirtual, t *tail) {
		w := s.vector()
		s.load(at(y, i, 4), t, w)
		sums.add(s.elements(at(x, i, 4), t), w, t)
	})
	sums.store()
	end()
}

// coder quantizes vectors.
type coder struct {
	isa
	name  string // keeps labels apart
	typ   numberType
	magic reg.VecVirtual
	sums  *sums

	// What the zero point of each element makes of the limits of magic sums,
	// and what it adds to the low bytes of these.
	lo, hi, zero reg.VecVirtual
}

// oneZero sets the coder to the single zero point. lo is the least code, top the
// greatest magic sum if that is the zero point.
func (c *coder) oneZero(zero, lo, top reg.GPVirtual) {
	z, low, high := GP32(), GP32(), GP32()
	MOVBLZX(mem(zero), z)
	c.zero = broadcastByte(z)
	SUBL(lo.As32(), z)
	MOVBLZX(z.As8(), z)
	MOVL(operand.U32(magicBits), low)
	SUBL(z, low)
	MOVL(top.As32(), high)
	SUBL(z, high)
	c.lo, c.hi = c.broadcast(low), c.broadcast(high)
}

// limits loads the parameters lo and hi and returns the least code and the
// greatest magic sum if that is the zero point.
func limits() (lo, top reg.GPVirtual) {
	lo, top = GP64(), GP64()
	Load(Param("lo"), lo.As32())
	Load(Param("hi"), top.As32())
	SUBL(lo.As32(), top.As32())
	ADDL(operand.U32(magicBits), top.As32())
	return lo, top
}

// quantize writes the codes of the elements x with scales s and adds up errors.
func (c *coder) quantize(q operand.Mem, x elements, s reg.VecVirtual, t *tail) {
	v := c.vector()
	VDIVPS(s, x.vector, v)
	if c.typ == float16Type {
		c.halfQuotient(v)
	}
	VADDPS(c.magic, v, v)
	VPMAXSD(c.lo, v, v)
	VPMINSD(c.hi, v, v)
	c.storeCodes(v, t, q)
	VSUBPS(c.magic, v, v)
	VMULPS(s, v, v)
	switch c.typ {
	case float16Type:
		v = c.halfProduct(v)
	case bfloat16Type:
		c.nearest(v, 16)
	}
	c.sums.add(x, v, t)
}

// halfQuotient rounds as the parent's halfQuotient does.
func (s isa) halfQuotient(v reg.VecVirtual) {
	VPADDD(constant("belowHalf13", 1<<12-1), v, v)
	s.and(constant("above13", ^uint32(1<<13-1)), v, v)
}

// halfProduct rounds as the parent's halfProduct does. The product that it fuses is exact.
func (s isa) halfProduct(v reg.VecVirtual) reg.VecVirtual {
	half := s.vector()
	VMULPS(constant("split", 0x46000400), v, half)       // 1<<13 + 1
	VFNMADD231PS(constant("upper", 0x46000000), v, half) // 1<<13
	return half
}

// roundFloat16 rounds as the parent's roundFloat16 does.
func (s isa) roundFloat16(v reg.VecVirtual) {
	grid := s.vector()
	s.and(constant("exponent", 0xff<<23), v, grid)
	VPMAXSD(constant("leastFloat16", (127-14)<<23), grid, grid)
	VPADDD(constant("gridFloat16", 13<<23+1<<22), grid, grid)
	VADDPS(grid, v, v)
	VSUBPS(grid, v, v)
}

// nearest rounds the lowest bits off, to nearest, ties to even.
func (s isa) nearest(v reg.VecVirtual, bits int) {
	name := strconv.Itoa(bits)
	odd := s.vector()
	VPSRLD(operand.U8(bits), v, odd)
	s.and(constant("one", 1), odd, odd)
	VPADDD(constant("belowHalf"+name, 1<<(bits-1)-1), v, v)
	VPADDD(odd, v, v)
	s.and(constant("above"+name, ^uint32(1<<bits-1)), v, v)
}

// storeCodes stores the low bytes of v, with the zero points added.
func (c *coder) storeCodes(v reg.VecVirtual, t *tail, q operand.Mem) {
	codes := c.lowBytes(v)
	VPADDB(c.zero, codes, codes)
	c.storeBytes(c.name, codes, t, q)
}

// lowBytes returns the low bytes of v, next to each other.
func (s isa) lowBytes(v reg.VecVirtual) reg.VecVirtual {
	codes := XMM()
	if s.wide() {
		VPMOVDB(v, codes)
		return codes
	}
	bytes := YMM()
	VPSHUFB(lowBytes(), v, bytes)
	VEXTRACTI128(operand.U8(1), bytes, codes)
	VPUNPCKLDQ(codes, bytes.AsX(), codes)
	return codes
}

// storeBytes stores a byte for each lane, only those of a tail if it is not nil.
// name keeps labels apart.
func (s isa) storeBytes(name string, codes reg.VecVirtual, t *tail, q operand.Mem) {
	switch {
	case s.wide() && t == nil:
		VMOVDQU(codes, q)
		return
	case s.wide():
		VMOVDQU8(codes, t.k, q)
		return
	case t == nil:
		VMOVQ(codes, q)
		return
	}
	rest, to := GP64(), GP64()
	VMOVQ(codes, rest)
	LEAQ(q, to)
	for _, size := range []int{4, 2, 1} {
		label := name + "No" + []string{"", "Byte", "Pair", "", "Four"}[size]
		TESTQ(operand.U32(size), t.n)
		JZ(operand.LabelRef(label))
		switch size {
		case 4:
			MOVL(rest.As32(), mem(to))
		case 2:
			MOVW(rest.As16(), mem(to))
		case 1:
			MOVB(rest.As8(), mem(to))
		}
		if size > 1 {
			SHRQ(operand.U8(8*size), rest)
			ADDQ(operand.U8(size), to)
		}
		Label(label)
	}
}

func quantizeBlocks(s isa) {
	TEXT("quantizeBlocks"+s.name, NOSPLIT,
		"func(q *byte, x, scale *float32, zero *byte, zeroStep, n, block int, lo, hi int32, typ int, "+sumsParams+")")
	Pragma("noescape")
	q, x, scale, zero := param("q"), param("x"), param("scale"), param("zero")
	step, n, block := param("zeroStep"), param("n"), param("block")
	lo, top := limits()
	sums, magic := loadSums(s), s.all(magicBits)
	eachType("", func(name string, t numberType) {
		c := &coder{isa: s, name: name, typ: t, magic: magic, sums: sums}
		eachBlock(name, n, block, func(length reg.GPVirtual) {
			one := s.vector()
			VBROADCASTSS(mem(scale), one)
			c.oneZero(zero, lo, top)
			s.eachVector(name, length, func(i reg.GPVirtual, t *tail) {
				c.quantize(at(q, i, 1), s.elements(at(x, i, 4), t), one, t)
			})
			ADDQ(operand.U8(4), scale)
			ADDQ(step, zero)
			ADDQ(length, q)
			LEAQ(at(x, length, 4), x)
		})
		sums.store()
		end()
	})
}

func quantizeColumns(s isa) {
	TEXT("quantizeColumns"+s.name, NOSPLIT,
		"func(q *byte, x, scale *float32, zero *byte, zeros bool, n, rows int, lo, hi int32, typ int, "+sumsParams+")")
	Pragma("noescape")
	doc := "quantizeColumns" + s.name + " has a zero point for each column if zeros, else one for all."
	if !s.wide() {
		doc += " There are at least 8 columns if zeros."
	}
	Doc(doc)
	q, x, scale, zero := param("q"), param("x"), param("scale"), param("zero")
	n, rows := param("n"), param("rows")
	lo, top := limits()
	sums, magic := loadSums(s), s.all(magicBits)
	loops := func(zeros bool) func(name string, t numberType) {
		return func(name string, t numberType) {
			c := &coder{isa: s, name: name, typ: t, magic: magic, sums: sums}
			var leastByte, topSum reg.VecVirtual
			if zeros {
				leastByte, topSum = broadcastByte(lo.As32()), s.broadcast(top.As32())
			} else {
				c.oneZero(zero, lo, top)
			}
			eachRow(name, x, n, rows, func() {
				s.eachVector(name, n, func(i reg.GPVirtual, t *tail) {
					if zeros {
						c.zeros(zero, i, n, t, leastByte, topSum)
					}
					if t == nil { // the scales read between distract the processor's own prefetching
						PREFETCHT0(at(x, i, 4).Offset(1024))
					}
					v, each := s.elements(at(x, i, 4), t), s.vector()
					s.load(at(scale, i, 4), t, each)
					c.quantize(at(q, i, 1), v, each, t)
				})
				ADDQ(n, q)
			})
			sums.store()
			end()
		}
	}
	zeros := GP32()
	Load(Param("zeros"), zeros.As8())
	TESTB(zeros.As8(), zeros.As8())
	JNZ(operand.LabelRef("zeros"))
	eachType("", loops(false))
	Label("zeros")
	eachType("zeros", loops(true))
}

// zeros sets the coder to the zero points from the i-th of n on.
func (c *coder) zeros(zero, i, n reg.GPVirtual, t *tail, leastByte, topSum reg.VecVirtual) {
	c.zero = XMM()
	switch {
	case c.wide() && t == nil:
		VMOVDQU(at(zero, i, 1), c.zero)
	case c.wide():
		VMOVDQU8_Z(at(zero, i, 1), t.k, c.zero)
	case t == nil:
		VMOVQ(at(zero, i, 1), c.zero)
	default: // the last eight, less those before i
		last, shift := GP64(), GP64()
		MOVQ(at(zero, n, 1).Offset(-8), last)
		MOVQ(t.less, shift)
		SHLQ(operand.U8(3), shift) // counts modulo 64
		SHRXQ(shift, last, last)
		VMOVQ(last, c.zero)
	}
	above := c.vector()
	VPSUBB(leastByte.AsX(), c.zero, above.AsX())
	VPMOVZXBD(above.AsX(), above)
	c.lo, c.hi = c.vector(), c.vector()
	VPSUBD(above, c.magic, c.lo)
	VPSUBD(above, topSum, c.hi)
}

func roundUpColumns(s isa) {
	TEXT("roundUpColumns"+s.name, NOSPLIT, "func(q *byte, x, factor, offset *float32, n, rows int, steps float32, least byte)")
	Pragma("noescape")
	q, x, factor, offset := param("q"), param("x"), param("factor"), param("offset")
	n, rows, steps := param("n"), param("rows"), s.floatParam("steps")
	lowest := GP32()
	Load(Param("least"), lowest.As8())
	least, none, one := broadcastByte(lowest), s.zero(), s.all(1)
	eachRow("", x, n, rows, func() {
		s.eachVector("", n, func(i reg.GPVirtual, t *tail) {
			v, each := s.vector(), s.vector()
			s.load(at(x, i, 4), t, v)
			s.load(at(factor, i, 4), t, each)
			VMULPS(each, v, v)
			s.load(at(offset, i, 4), t, each)
			VADDPS(each, v, v)
			VMAXPS(none, v, v) // v > 0 ? v : 0
			VMINPS(steps, v, v)
			VADDPS(v, v, v)
			VCVTTPS2DQ(v, v)
			VPADDD(one, v, v)
			VPSRLD(operand.U8(1), v, v)
			codes := s.lowBytes(v)
			VPADDB(least, codes, codes)
			s.storeBytes("", codes, t, at(q, i, 1))
		})
		ADDQ(n, q)
	})
	end()
}
