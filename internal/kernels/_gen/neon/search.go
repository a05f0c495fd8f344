package main

import "math"

// The searches take eight blocks side by side: element i of all blocks, then element i+1. So sums of a block go in the
// order of its elements.

// eachElement writes a loop over n vectors of each of some arrays. The body gets them, two for each array.
func eachElement(name string, n register, arrays []register, body func(v [][]vector)) {
	scratch(func() {
		left, places, v := general(), []register{}, [][]vector{}
		line("MOVD %v, %v", n, left)
		for _, a := range arrays {
			p := general()
			line("MOVD %v, %v", a, p)
			places, v = append(places, p), append(v, vectors(2))
		}
		loop(name, left, 1, func() {
			for i, p := range places {
				loadNext(p, v[i]...)
			}
			body(v)
		})
	})
}

// The fields of an affine search; the first four are what it finds.
const (
	foundScale = iota
	foundLeast
	foundInverse
	foundLow
	sumW
	sumX
	high
	leastError
	flat // where the block has a single value
)

func affineSearch() {
	function("affineSearch", "takes eight blocks of n elements. codes are how many codes the range of each try has, the first that of the range of all elements. q is for the codes of a try.",
		"state, x, w, q *float32, n int, codes *float32, tries int, last float32, absolute bool")
	f := fields{param("state"), 32}
	x, w, q, n, codes, tries, absolute := param("x"), param("w"), param("q"), param("n"), param("codes"), param("tries"), param("absolute")
	last, zero := floatParam("last"), all(0)

	scratch(func() { // the range, and sums that no codes are in
		low, most, sw, sx, mask := vectors(2), vectors(2), vectors(2), vectors(2), vectors(1)[0]
		loadAt(x, 0, low...)
		loadAt(x, 0, most...)
		for i := range 2 {
			clear(sw[i])
			clear(sx[i])
		}
		eachElement("range", n, []register{x, w}, func(v [][]vector) {
			for i, x := range v[0] {
				atMost(low[i], x, mask)
				atLeast(most[i], x, mask)
				fadd(sw[i], sw[i], v[1][i])
				fmul(x, x, v[1][i])
				fadd(sx[i], sx[i], x)
			}
		})
		for _, l := range low {
			atMost(l, zero, mask)
		}
		f.store(sumW, sw)
		f.store(sumX, sx)
		f.store(high, most)
		f.store(foundLeast, low)
		f.store(foundLow, low)
		for i, l := range low {
			fceq(l, l, most[i])
		}
		f.store(flat, low)
	})

	// encode sets q to the codes of a try, and in to its inverse.
	encode := func(name string, in, least []vector, more func(x, q, w []vector)) {
		scratch(func() {
			codesOf := number(codes, 0)
			f.load(high, in)
			for i, in := range in {
				fsub(in, in, least[i])
				fdiv(in, codesOf, in)
			}
		})
		scratch(func() {
			to, t := general(), vectors(2)
			line("MOVD %v, %v", q, to)
			eachElement(name, n, []register{x, w}, func(v [][]vector) {
				for i, t := range t {
					fsub(t, v[0][i], least[i])
					fmul(t, in[i], t)
					frintn(t, t)
					clamp(t, zero, last)
				}
				storeNext(to, t...)
				if more != nil {
					more(v[0], t, v[1])
				}
			})
		})
	}
	// errors adds the weighted errors of codes.
	errors := func(name string, sum, scale, least []vector) {
		adds := func(name string, penalty func(d vector)) {
			eachElement(name, n, []register{x, w, q}, func(v [][]vector) {
				for i, d := range v[2] {
					fmul(d, scale[i], d)
					fadd(d, d, least[i])
					fsub(d, d, v[0][i])
					penalty(d)
					fmul(d, v[1][i], d)
					fadd(sum[i], sum[i], d)
				}
			})
		}
		for _, s := range sum {
			clear(s)
		}
		line("CBNZ %v, %sAbsolute", absolute, name)
		adds(name+"Square", func(d vector) { fmul(d, d, d) })
		line("B %sDone", name)
		label(name + "Absolute")
		adds(name+"Magnitude", func(d vector) { fabs(d, d) })
		label(name + "Done")
	}

	scratch(func() { // what is to be beaten
		in, least, scale, sum := vectors(2), f.loaded(foundLeast), vectors(2), vectors(2)
		encode("first", in, least, nil)
		one := all(math.Float32bits(1))
		for i, in := range in {
			fdiv(scale[i], one, in)
		}
		errors("first", sum, scale, least)
		f.store(foundInverse, in)
		f.store(foundScale, scale)
		f.store(leastError, sum)
	})
	again := func() {
		line("ADD $4, %v", codes)
		in, least, sumQ, sumQQ, sumXQ := vectors(2), f.loaded(foundLeast), vectors(2), vectors(2), vectors(2)
		for i := range 2 {
			clear(sumQ[i])
			clear(sumQQ[i])
			clear(sumXQ[i])
		}
		encode("sums", in, least, func(x, q, w []vector) {
			for i, wq := range w {
				fmul(wq, wq, q[i])
				fadd(sumQ[i], sumQ[i], wq)
				fmul(q[i], wq, q[i])
				fadd(sumQQ[i], sumQQ[i], q[i])
				fmul(wq, wq, x[i])
				fadd(sumXQ[i], sumXQ[i], wq)
			}
		})
		det, fitted, from, better := vectors(2), vectors(2), vectors(2), vectors(2)
		scratch(func() {
			t, sw, sx := vectors(1)[0], f.loaded(sumW), f.loaded(sumX)
			for i := range 2 {
				difference := func(d, a, b, c, e vector) { // a·b - c·e
					fmul(d, a, b)
					fmul(t, c, e)
					fsub(d, d, t)
				}
				difference(det[i], sw[i], sumQQ[i], sumQ[i], sumQ[i])
				difference(fitted[i], sw[i], sumXQ[i], sx[i], sumQ[i])
				difference(from[i], sumQQ[i], sx[i], sumQ[i], sumXQ[i])
				fdiv(fitted[i], fitted[i], det[i])
				fdiv(from[i], from[i], det[i])
				fdiv(sumXQ[i], sumXQ[i], sumQQ[i])
				fcgt(t, from[i], zero)
				insert(fitted[i], sumXQ[i], t)
				without(from[i], from[i], t)
				fcgt(better[i], det[i], zero)
			}
		})
		sum := sumQ
		errors("try", sum, fitted, from)
		best := det
		f.load(leastError, best)
		for i, b := range best {
			fcgt(b, b, sum[i])
			and(better[i], better[i], b)
		}
		f.keep(sum, leastError, better)
		f.keep(in, foundInverse, better)
		f.keep(least, foundLow, better)
		f.keep(fitted, foundScale, better)
		f.keep(from, foundLeast, better)
	}
	loop("try", tries, 1, func() { scratch(again) })
	mask, least, low := f.loaded(flat), f.loaded(foundLeast), f.loaded(foundLow)
	nothing := []vector{zero, zero}
	f.keep(nothing, foundScale, mask)
	f.keep(nothing, foundInverse, mask)
	for i, l := range least {
		insert(l, low[i], mask[i])
		fneg(l, l)
	}
	f.store(foundLeast, least)
	end()
}

func symmetricSearch() {
	function("symmetricSearch", "takes eight blocks of n elements. codes are the codes that the element of largest magnitude is to have.",
		"scale, inverse, x, w *float32, n int, codes *float32, tries int, half, negligible float32")
	x, w, n, codes, tries := param("x"), param("w"), param("n"), param("codes"), param("tries")
	hi, lo, zero, largest := floatParam("half"), vectors(1)[0], all(0), vectors(2)
	scratch(func() {
		one, a, mask, amax := all(math.Float32bits(1)), vectors(1)[0], vectors(1)[0], vectors(2)
		fsub(lo, zero, hi)
		fsub(hi, hi, one)
		for i := range 2 {
			clear(largest[i])
			clear(amax[i])
		}
		eachElement("largest", n, []register{x}, func(v [][]vector) {
			for i, x := range v[0] {
				fabs(a, x)
				fcgt(mask, a, amax[i])
				insert(largest[i], x, mask)
				insert(amax[i], a, mask)
			}
		})
	})
	fit := func(name string, in, xq, qq []vector) {
		scratch(func() {
			code := number(codes, 0)
			for i, in := range in {
				fdiv(in, code, largest[i])
				clear(xq[i])
				clear(qq[i])
			}
		})
		scratch(func() {
			q := vectors(2)
			eachElement(name, n, []register{x, w}, func(v [][]vector) {
				for i, q := range q {
					x, w := v[0][i], v[1][i]
					fmul(q, in[i], x)
					frintn(q, q)
					clamp(q, lo, hi)
					fmul(x, w, x)
					fmul(x, x, q)
					fadd(xq[i], xq[i], x)
					fmul(w, w, q)
					fmul(w, w, q)
					fadd(qq[i], qq[i], w)
				}
			})
		})
	}
	inverse, scale, best := vectors(2), vectors(2), vectors(2)
	in, xq, qq, t := vectors(2), vectors(2), vectors(2), vectors(2)
	fit("first", inverse, xq, qq)
	for i := range 2 {
		fdiv(scale[i], xq[i], qq[i])
		isZero(t[0], qq[i])
		without(scale[i], scale[i], t[0])
		fmul(best[i], scale[i], xq[i])
	}
	loop("try", tries, 1, func() {
		line("ADD $4, %v", codes)
		fit("sums", in, xq, qq)
		for i := range 2 {
			fmul(t[0], xq[i], xq[i])
			fmul(t[1], best[i], qq[i])
			fcgt(t[0], t[0], t[1])
			fcgt(t[1], qq[i], zero)
			and(t[0], t[0], t[1])
			fdiv(qq[i], xq[i], qq[i])
			insert(inverse[i], in[i], t[0])
			insert(scale[i], qq[i], t[0])
			fmul(qq[i], qq[i], xq[i])
			insert(best[i], qq[i], t[0])
		}
	})
	negligible := floatParam("negligible")
	for i, l := range largest {
		fabs(l, l)
		fcgt(l, negligible, l)
		without(scale[i], scale[i], l)
		without(inverse[i], inverse[i], l)
	}
	storeAt(param("scale"), 0, scale...)
	storeAt(param("inverse"), 0, inverse...)
	end()
}

// recode gives codes to blocks, each with a scale and a least value.
func recode() {
	function("recode", "takes whole blocks; 16 divides their size n.", "q *byte, x, scale, least *float32, blocks, n int, zero, last int32")
	q, x, scale, least, blocks, n := param("q"), param("x"), param("scale"), param("least"), param("blocks"), param("n")
	magic, mantissa, offset, last, nothing := all(magicBits), all(1<<23-1), all(1<<22), vectors(1)[0], all(0)
	broadcast(last, param("last"))
	d, m, v := vectors(1)[0], vectors(1)[0], vectors(2)
	scratch(func() {
		zero := vectors(1)[0]
		broadcast(zero, param("zero"))
		sub(offset, offset, zero) // what the bits of the sum have too many
	})
	eachBlock("", blocks, n, func(left register) {
		line("FMOVS.P 4(%v), F%d", scale, d)
		dup(d, d, 0)
		line("FMOVS.P 4(%v), F%d", least, m)
		dup(m, m, 0)
		loop("next", left, 8, func() {
			loadNext(x, v...)
			for _, v := range v {
				fadd(v, v, m)
				fdiv(v, v, d)
				fadd(v, v, magic)
				and(v, v, mantissa)
				sub(v, v, offset)
				smin(v, v, last)
				smax(v, v, nothing)
			}
			lowBytes(v[0], v)
			line("FMOVD.P F%d, 8(%v)", v[0], q)
		})
	})
	end()
}
