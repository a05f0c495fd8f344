package main

import "slices"

// numberType is the parent package's Type.
type numberType int

const (
	float32Type numberType = iota
	float16Type
	bfloat16Type
)

// eachType writes the loops of a function for each type; the parameter typ selects one. name keeps labels apart.
func eachType(name string, loops func(name string, t numberType)) {
	typ := param("typ")
	for t, of := range []string{"Float32", "Float16", "BFloat16"} {
		if numberType(t) != bfloat16Type {
			line("CMP $%d, %v", t, typ)
			line("BNE %sNot%s", name, of)
		}
		scratch(func() { loops(name+of, numberType(t)) })
		if numberType(t) != bfloat16Type {
			label(name + "Not" + of)
		}
	}
}

const magicBits = 0x4b400000

// sums is an ErrorSums in registers.
type sums struct {
	sqErr, sq []vector // 8 float64 each
	maxAbs    vector
	half      [2]vector // scratch
}

const sumsParams = "sqErr, sq *[8]float64, maxAbs *uint32"

// loadSums loads the sums that the function's parameters name.
func loadSums() *sums {
	s := &sums{vectors(4), vectors(4), vectors(1)[0], [2]vector(vectors(2))}
	scratch(func() {
		p, q, r := param("sqErr"), param("sq"), param("maxAbs")
		for i := 0; i < 4; i += 2 {
			loadAt(p, 16*i, s.sqErr[i:i+2]...)
			loadAt(q, 16*i, s.sq[i:i+2]...)
		}
		line("FMOVS (%v), F%d", r, s.maxAbs)
	})
	return s
}

func (s *sums) store() {
	scratch(func() {
		p, q, r := param("sqErr"), param("sq"), param("maxAbs")
		for i := 0; i < 4; i += 2 {
			storeAt(p, 16*i, s.sqErr[i:i+2]...)
			storeAt(q, 16*i, s.sq[i:i+2]...)
		}
		largestUnsigned(s.maxAbs, s.maxAbs)
		line("FMOVS F%d, (%v)", s.maxAbs, r)
	})
}

// add adds the errors of y, the eight elements x stand for. It destroys y.
func (s *sums) add(x, y []vector) {
	for i := range x {
		s.addHalf(i, x[i], y[i])
	}
}

// addHalf adds the errors of the first four of eight elements, or of the others.
func (s *sums) addHalf(half int, x, y vector) {
	fsub(y, x, y)
	s.addSquares(s.sqErr[2*half:], y)
	s.addSquares(s.sq[2*half:], x)
	fabs(y, y)
	umax(s.maxAbs, s.maxAbs, y)
}

// addSquares adds the squares of v. They are exact, so that fusing changes nothing.
func (s *sums) addSquares(parts []vector, v vector) {
	lower64(s.half[0], v)
	upper64(s.half[1], v)
	for i, h := range s.half {
		fmla64(parts[i], h, h)
	}
}

func addErrors() {
	function("addErrors", "takes n elements, a multiple of 8 above 0.", "x, y *float32, n int, "+sumsParams)
	x, y, n, s := param("x"), param("y"), param("n"), loadSums()
	v, w := vectors(2), vectors(2)
	loop("next", n, 8, func() {
		loadNext(x, v...)
		loadNext(y, w...)
		s.add(v, w)
	})
	s.store()
	end()
}

// rounder rounds vectors to a type, as the functions of these names in the parent package do.
type rounder struct {
	typ       numberType
	constants map[uint32]vector
	temp      vector
}

// What the functions below need.
var (
	forHalfQuotient = []uint32{1<<12 - 1, 1<<13 - 1}
	forHalfProduct  = []uint32{0x46000400, 0x46000000} // 1<<13 + 1, 1<<13
	forRound        = [][]uint32{
		float16Type:  {0xff << 23, (127 - 14) << 23, 13<<23 + 1<<22},
		bfloat16Type: {1, 1<<15 - 1, 1<<16 - 1},
	}
)

func newRounder(t numberType, constants ...uint32) *rounder {
	r := &rounder{t, map[uint32]vector{}, vectors(1)[0]}
	for _, bits := range constants {
		r.constants[bits] = all(bits)
	}
	return r
}

func (r *rounder) constant(bits uint32) vector {
	v, ok := r.constants[bits]
	if !ok {
		panic("a constant is not loaded")
	}
	return v
}

func (r *rounder) halfQuotient(v vector) {
	add(v, v, r.constant(1<<12-1))
	without(v, v, r.constant(1<<13-1))
}

// halfProduct fuses a product that is exact.
func (r *rounder) halfProduct(v vector) {
	fmul(r.temp, v, r.constant(forHalfProduct[0]))
	fmls(r.temp, v, r.constant(forHalfProduct[1]))
	or(v, r.temp, r.temp)
}

func (r *rounder) roundFloat16(v vector) {
	and(r.temp, v, r.constant(0xff<<23))
	smax(r.temp, r.temp, r.constant((127-14)<<23))
	add(r.temp, r.temp, r.constant(13<<23+1<<22))
	fadd(v, v, r.temp)
	fsub(v, v, r.temp)
}

func (r *rounder) roundBFloat16(v vector) {
	ushr(r.temp, v, 16)
	and(r.temp, r.temp, r.constant(1))
	add(v, v, r.constant(1<<15-1))
	add(v, v, r.temp)
	without(v, v, r.constant(1<<16-1))
}

// round rounds v to the type.
func (r *rounder) round(v vector) {
	switch r.typ {
	case float16Type:
		r.roundFloat16(v)
	case bfloat16Type:
		r.roundBFloat16(v)
	}
}

// coder quantizes eight elements at a time.
type coder struct {
	*rounder
	sums   *sums
	magic  vector
	lo, hi []vector // the limits of magic sums
	zero   vector   // what is added to their low bytes
	v      []vector
}

func newCoder(t numberType, s *sums, magic vector) *coder {
	constants := forRound[t]
	if t == float16Type {
		constants = slices.Concat(forHalfQuotient, forHalfProduct)
	}
	return &coder{newRounder(t, constants...), s, magic, vectors(2), vectors(2), vectors(1)[0], vectors(2)}
}

// limits loads the parameters lo and hi. It returns the least code, and the greatest magic sum if that is the zero point.
func limits() (lo, top register) {
	lo, top = param("lo"), param("hi")
	line("SUBW %v, %v", lo, top)
	scratch(func() {
		magic := general()
		line("MOVD $%#x, %v", magicBits, magic)
		line("ADDW %v, %v", magic, top)
	})
	return lo, top
}

// oneZero sets the coder to the single zero point.
func (c *coder) oneZero(zero, lo, top register) {
	scratch(func() {
		z, limit := general(), general()
		line("MOVBU (%v), %v", zero, z)
		broadcastByte(c.zero, z)
		line("SUBW %v, %v", lo, z)
		line("MOVBU %v, %v", z, z)
		line("MOVD $%#x, %v", magicBits, limit)
		line("SUBW %v, %v", z, limit)
		broadcast(c.lo[0], limit)
		line("SUBW %v, %v, %v", z, top, limit)
		broadcast(c.hi[0], limit)
	})
	c.lo[1], c.hi[1] = c.lo[0], c.hi[0]
}

// zeros sets the coder to eight zero points.
func (c *coder) zeros(zero register, leastByte, top vector) {
	line("FMOVD.P 8(%v), F%d", zero, c.zero)
	above := c.v[0]
	subBytes(above, c.zero, leastByte)
	widenBytes(above, above)
	widenUpper(c.lo[1], above)
	widenHalves(c.lo[0], above)
	for i, v := range c.lo {
		sub(c.hi[i], top, v)
		sub(v, c.magic, v)
	}
}

// quantize writes the codes of eight elements with their scales, and adds up errors.
func (c *coder) quantize(q register, x, scale []vector) {
	for i, v := range c.v {
		fdiv(v, x[i], scale[i])
		if c.typ == float16Type {
			c.halfQuotient(v)
		}
		fadd(v, v, c.magic)
		smax(v, v, c.lo[i])
		smin(v, v, c.hi[i])
	}
	codes := c.temp
	lowBytes(codes, c.v)
	addBytes(codes, codes, c.zero)
	line("FMOVD.P F%d, 8(%v)", codes, q)
	for i, v := range c.v {
		fsub(v, v, c.magic)
		fmul(v, v, scale[i])
		if c.typ == float16Type {
			c.halfProduct(v)
		} else {
			c.round(v)
		}
	}
	c.sums.add(x, c.v)
}

// lowBytes puts the low bytes of the lanes of v next to each other.
func lowBytes(d vector, v []vector) {
	evenHalves(d, v[0], v[1])
	evenBytes(d, d, d)
}

func quantizeBlocks() {
	function("quantizeBlocks", "takes whole blocks; 8 divides their size n.",
		"q *byte, x, scale *float32, zero *byte, zeroStep, blocks, n int, lo, hi int32, typ int, "+sumsParams)
	q, x, scale, zero := param("q"), param("x"), param("scale"), param("zero")
	step, blocks, n := param("zeroStep"), param("blocks"), param("n")
	lo, top := limits()
	s, magic := loadSums(), all(magicBits)
	eachType("", func(name string, t numberType) {
		c, v, one := newCoder(t, s, magic), vectors(2), vectors(1)[0]
		eachBlock(name, blocks, n, func(left register) {
			line("FMOVS.P 4(%v), F%d", scale, one)
			dup(one, one, 0)
			c.oneZero(zero, lo, top)
			line("ADD %v, %v", step, zero)
			loop(name, left, 8, func() {
				loadNext(x, v...)
				c.quantize(q, v, []vector{one, one})
			})
		})
		s.store()
		end()
	})
}

func quantizeColumns() {
	function("quantizeColumns", "takes rows of n elements, a multiple of 8. There is a zero point for each column if zeros, else one for all.",
		"q *byte, x, scale *float32, zero *byte, zeros bool, n, rows int, lo, hi int32, typ int, "+sumsParams)
	q, x, scale, zero := param("q"), param("x"), param("scale"), param("zero")
	zeros, n, rows := param("zeros"), param("n"), param("rows")
	lo, top := limits()
	s, magic := loadSums(), all(magicBits)
	from, fromZero, left := general(), general(), general()
	loops := func(each bool) func(name string, t numberType) {
		return func(name string, t numberType) {
			c, v, scales := newCoder(t, s, magic), vectors(2), vectors(2)
			var leastByte, topSum vector
			if each {
				leastByte, topSum = vectors(1)[0], vectors(1)[0]
				broadcastByte(leastByte, lo)
				broadcast(topSum, top)
			} else {
				c.oneZero(zero, lo, top)
			}
			loop(name+"Row", rows, 1, func() {
				line("MOVD %v, %v", scale, from)
				line("MOVD %v, %v", zero, fromZero)
				line("MOVD %v, %v", n, left)
				loop(name, left, 8, func() {
					if each {
						c.zeros(fromZero, leastByte, topSum)
					}
					loadNext(x, v...)
					loadNext(from, scales...)
					c.quantize(q, v, scales)
				})
			})
			s.store()
			end()
		}
	}
	line("CBNZ %v, each", zeros)
	scratch(func() { eachType("one", loops(false)) })
	label("each")
	eachType("each", loops(true))
}

func roundUpColumns() {
	function("roundUpColumns", "takes rows of n elements, a multiple of 8.",
		"q *byte, x, factor, offset *float32, n, rows int, steps float32, least byte")
	q, x, factor, offset, n, rows := param("q"), param("x"), param("factor"), param("offset"), param("n"), param("rows")
	steps, least, none, one := floatParam("steps"), vectors(1)[0], all(0), all(1)
	broadcastByte(least, param("least"))
	f, o, left := general(), general(), general()
	v, factors, offsets, mask := vectors(2), vectors(2), vectors(2), vectors(1)[0]
	loop("row", rows, 1, func() {
		line("MOVD %v, %v", factor, f)
		line("MOVD %v, %v", offset, o)
		line("MOVD %v, %v", n, left)
		loop("next", left, 8, func() {
			loadNext(x, v...)
			loadNext(f, factors...)
			loadNext(o, offsets...)
			for i, v := range v {
				fmul(v, v, factors[i])
				fadd(v, v, offsets[i])
				fcgt(mask, v, none) // v > 0 ? v : 0
				and(v, v, mask)
				fcgt(mask, v, steps)
				insert(v, steps, mask)
				fadd(v, v, v)
				fcvtzs(v, v)
				add(v, v, one)
				ushr(v, v, 1)
			}
			lowBytes(mask, v)
			addBytes(mask, mask, least)
			line("FMOVD.P F%d, 8(%v)", mask, q)
		})
	})
	end()
}

// decoder makes numbers of eight codes, which count from the least one.
type decoder struct {
	least vector // in all bytes
	zero  vector // the zero point, in all lanes
	v     []vector
}

func newDecoder() *decoder {
	d := &decoder{vectors(1)[0], vectors(1)[0], vectors(2)}
	broadcastByte(d.least, param("lo"))
	broadcast(d.zero, param("zero"))
	return d
}

// aboveLeast sets v to how far codes are above the least one.
func (d *decoder) aboveLeast(v []vector, q register) {
	line("FMOVD.P 8(%v), F%d", q, v[0])
	subBytes(v[0], v[0], d.least)
	widenBytes(v[0], v[0])
	widenUpper(v[1], v[0])
	widenHalves(v[0], v[0])
}

// decode stores the numbers of codes.
func (d *decoder) decode(x, q register, zero, scale []vector) {
	d.aboveLeast(d.v, q)
	for i, v := range d.v {
		sub(v, v, zero[i])
		scvtf(v, v)
		fmul(v, v, scale[i])
	}
	storeNext(x, d.v...)
}

func dequantizeBlock() {
	function("dequantizeBlock", "takes n codes, a multiple of 8 above 0. zero counts from lo.",
		"x *float32, q *byte, scale float32, n int, lo, zero int32")
	x, q, n, scale, d := param("x"), param("q"), param("n"), floatParam("scale"), newDecoder()
	loop("next", n, 8, func() { d.decode(x, q, []vector{d.zero, d.zero}, []vector{scale, scale}) })
	end()
}

func dequantizeColumns() {
	function("dequantizeColumns", "takes the first columns of rows of n codes: whole, a multiple of 8. If zeros is nil, all have one zero point, which counts from lo.",
		"x *float32, q *byte, scale *float32, zeros *byte, n, whole, rows int, lo, zero int32")
	x, q, scale, zeros, n, whole, rows := param("x"), param("q"), param("scale"), param("zeros"), param("n"), param("whole"), param("rows")
	d, scales, zero := newDecoder(), vectors(2), vectors(2)
	from, fromZero, left := general(), general(), general()
	line("SUB %v, %v", whole, n)
	loops := func(name string, each bool) {
		loop(name+"Row", rows, 1, func() {
			line("MOVD %v, %v", scale, from)
			line("MOVD %v, %v", zeros, fromZero)
			line("MOVD %v, %v", whole, left)
			loop(name, left, 8, func() {
				of := []vector{d.zero, d.zero}
				if each {
					of = zero
					d.aboveLeast(of, fromZero)
				}
				loadNext(from, scales...)
				d.decode(x, q, of, scales)
			})
			line("ADD %v, %v", n, q)
			line("ADD %v<<2, %v", n, x)
		})
		end()
	}
	line("CBNZ %v, zeros", zeros)
	loops("one", false)
	label("zeros")
	loops("each", true)
}
