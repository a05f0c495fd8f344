package main

// valuer finds codes of vectors, and what these stand for.
type valuer interface {
	// scaled makes a scale the one to divide and multiply by.
	scaled(s vector)

	// value makes v, elements with scales s, what their codes stand for, still to be multiplied by s.
	// It sets codes, if it is not nil, to the codes.
	value(v, s vector, codes *vector)
}

// miniFloat is the parent's MiniFloat.
type miniFloat struct {
	least, most, right, dropExp, signRight, zero, signless vector
	exponent, sign, factor                                 vector
	temps                                                  []vector
}

func newMiniFloat() valuer {
	f := &miniFloat{factor: floatParam("factor"), exponent: all(0xff << 23), sign: all(signBit), temps: vectors(3)}
	scratch(func() {
		rules := param("rules")
		for i, v := range []*vector{&f.least, &f.most, &f.right, &f.dropExp, &f.signRight, &f.zero, &f.signless} {
			*v = number(rules, 4*i)
		}
	})
	nextV += 7
	zero := f.temps[0]
	clear(zero)
	for _, distance := range []vector{f.right, f.signRight} { // negative: to the right
		sub(distance, zero, distance)
	}
	return f
}

func (f *miniFloat) scaled(s vector) { fmul(s, s, f.factor) }

func (f *miniFloat) value(v, s vector, codes *vector) {
	e, power, sign := f.temps[0], f.temps[1], f.temps[2]
	fadd(sign, v, f.zero)
	and(sign, sign, f.sign)
	fdiv(v, v, s)
	fabs(v, v)
	umin(v, v, f.most)
	and(e, v, f.exponent)
	umax(e, e, f.least)
	add(power, e, f.dropExp)
	fadd(v, v, power)
	if codes == nil {
		fsub(v, v, power)
		or(v, v, sign)
		return
	}
	sub(e, e, f.least)
	ushl(e, e, f.right)
	add(e, e, v)
	sub(e, e, power)
	fsub(v, v, power)
	or(v, v, sign)
	ushl(sign, sign, f.signRight)
	ceq(power, e, f.signless)
	without(sign, sign, power)
	or(e, e, sign)
	*codes = e
}

// decoded makes v, the value of a code, what the code stands for.
func decoded(r *rounder, v, scale vector) {
	fmul(v, v, scale)
	r.round(v)
}

// finish writes the codes of four elements x with scales s, and adds up errors: the first half of eight, or the second.
func finish(by valuer, r *rounder, sums *sums, half int, q register, x, s, y vector) {
	or(y, x, x)
	var codes vector
	by.value(y, s, &codes)
	evenHalves(codes, codes, codes)
	evenBytes(codes, codes, codes)
	line("FMOVS.P F%d, 4(%v)", codes, q)
	decoded(r, y, s)
	sums.addHalf(half, x, y)
}

func quantizeFloatBlocks() {
	function("quantizeFloatBlocks", "takes whole blocks; 8 divides their size n.",
		"q *byte, x, scale *float32, factor float32, blocks, n int, rules *uint32, typ int, "+sumsParams)
	q, x, scale, blocks, n := param("q"), param("x"), param("scale"), param("blocks"), param("n")
	by, sums := newMiniFloat(), loadSums()
	eachType("", func(name string, t numberType) {
		r, v, y, one := newRounder(t, forRound[t]...), vectors(1)[0], vectors(1)[0], vectors(1)[0]
		eachBlock(name, blocks, n, func(left register) {
			line("FMOVS.P 4(%v), F%d", scale, one)
			dup(one, one, 0)
			by.scaled(one)
			loop(name, left, 8, func() {
				for half := range 2 {
					loadNext(x, v)
					finish(by, r, sums, half, q, v, one, y)
				}
			})
		})
		sums.store()
		end()
	})
}

func quantizeFloatColumns() {
	function("quantizeFloatColumns", "takes rows of n elements, a multiple of 8.",
		"q *byte, x, scale *float32, factor float32, n, rows int, rules *uint32, typ int, "+sumsParams)
	q, x, scale, n, rows := param("q"), param("x"), param("scale"), param("n"), param("rows")
	by, sums := newMiniFloat(), loadSums()
	from, left := general(), general()
	eachType("", func(name string, t numberType) {
		r, v, y, each := newRounder(t, forRound[t]...), vectors(1)[0], vectors(1)[0], vectors(1)[0]
		loop(name+"Row", rows, 1, func() {
			line("MOVD %v, %v", scale, from)
			line("MOVD %v, %v", n, left)
			loop(name, left, 8, func() {
				for half := range 2 {
					loadNext(x, v)
					loadNext(from, each)
					by.scaled(each)
					finish(by, r, sums, half, q, v, each, y)
				}
			})
		})
		sums.store()
		end()
	})
}

// total makes lane 0 of sqErr the sum of all its parts, in the parent's order.
func (s *sums) total() {
	faddPairs(s.sqErr[0], s.sqErr[0], s.sqErr[1])
	faddPairs(s.sqErr[2], s.sqErr[2], s.sqErr[3])
	faddPairs(s.sqErr[0], s.sqErr[0], s.sqErr[2])
	faddPairs(s.sqErr[0], s.sqErr[0], s.sqErr[0])
}

// tryFloat sets each e to the sum of squared errors with a scale.
func tryFloat() {
	function("tryFloat", "takes n elements, a multiple of 8 above 0.",
		"e *float64, x *float32, n int, scale *float32, tries int, factor float32, rules *uint32, typ int")
	e, x, n, scale, tries := param("e"), param("x"), param("n"), param("scale"), param("tries")
	by, sqErr, half, from, left := newMiniFloat(), vectors(4), vectors(2), general(), general()
	sums := &sums{sqErr: sqErr, half: [2]vector(half)}
	eachType("", func(name string, t numberType) {
		r, v, y, one := newRounder(t, forRound[t]...), vectors(1)[0], vectors(1)[0], vectors(1)[0]
		loop(name+"Try", tries, 1, func() {
			line("FMOVS.P 4(%v), F%d", scale, one)
			dup(one, one, 0)
			by.scaled(one)
			for _, s := range sqErr {
				clear(s)
			}
			line("MOVD %v, %v", x, from)
			line("MOVD %v, %v", n, left)
			loop(name, left, 8, func() {
				for half := range 2 {
					loadNext(from, v)
					or(y, v, v)
					by.value(y, one, nil)
					decoded(r, y, one)
					fsub(y, v, y)
					sums.addSquares(sqErr[2*half:], y)
				}
			})
			sums.total()
			line("FMOVD.P F%d, 8(%v)", sqErr[0], e)
		})
		end()
	})
}
