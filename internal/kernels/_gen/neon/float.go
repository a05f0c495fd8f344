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

func newMiniFloat(*sums) valuer {
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

const (
	floatParams   = "rules *uint32, typ int"
	nearestParams = "tree, values, codes *[16]uint32, typ int"
	wholeBlocks   = "takes whole blocks; 8 divides their size n."
	wholeRows     = "takes rows of n elements, a multiple of 8."
)

func quantizeFloatBlocks() {
	function("quantizeFloatBlocks", wholeBlocks, "q *byte, x, scale *float32, factor float32, blocks, n int, "+floatParams+", "+sumsParams)
	blocksBy(newMiniFloat)
}

func quantizeFloatColumns() {
	function("quantizeFloatColumns", wholeRows, "q *byte, x, scale *float32, factor float32, n, rows int, "+floatParams+", "+sumsParams)
	columnsBy(newMiniFloat)
}

func tryFloat() {
	function("tryFloat", "takes n elements, a multiple of 8 above 0.", triesParams+"factor float32, "+floatParams)
	triesBy(newMiniFloat)
}

func quantizeNearestBlocks() {
	function("quantizeNearestBlocks", wholeBlocks, "q *byte, x, scale *float32, blocks, n int, "+nearestParams+", "+sumsParams)
	blocksBy(newNearestOf)
}

func quantizeNearestColumns() {
	function("quantizeNearestColumns", wholeRows, "q *byte, x, scale *float32, n, rows int, "+nearestParams+", "+sumsParams)
	columnsBy(newNearestOf)
}

func tryNearest() {
	function("tryNearest", "takes n elements, a multiple of 8 above 0.", triesParams+nearestParams)
	triesBy(newNearestOf)
}

// blocksBy writes the body of a function that quantizes blocks.
func blocksBy(newValuer func(*sums) valuer) {
	q, x, scale, blocks, n, sums := param("q"), param("x"), param("scale"), param("blocks"), param("n"), loadSums()
	by := newValuer(sums)
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

// columnsBy writes the body of a function that quantizes columns.
func columnsBy(newValuer func(*sums) valuer) {
	q, x, scale, n, rows, sums := param("q"), param("x"), param("scale"), param("n"), param("rows"), loadSums()
	by, from, left := newValuer(sums), general(), general()
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

const triesParams = "e *float64, x *float32, n int, scale *float32, tries int, "

// triesBy writes the body of a function that sets each e to the sum of squared errors of n elements with a scale.
func triesBy(newValuer func(*sums) valuer) {
	e, x, n, scale, tries := param("e"), param("x"), param("n"), param("scale"), param("tries")
	sums := &sums{sqErr: vectors(4), half: [2]vector(vectors(2))}
	by, from, left := newValuer(sums), general(), general()
	eachType("", func(name string, t numberType) {
		r, v, y, one := newRounder(t, forRound[t]...), vectors(1)[0], vectors(1)[0], vectors(1)[0]
		loop(name+"Try", tries, 1, func() {
			line("FMOVS.P 4(%v), F%d", scale, one)
			dup(one, one, 0)
			by.scaled(one)
			for _, s := range sums.sqErr {
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
					sums.addSquares(sums.sqErr[2*half:], y)
				}
			})
			sums.total()
			line("FMOVD.P F%d, 8(%v)", sums.sqErr[0], e)
		})
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
