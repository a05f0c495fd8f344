package main

func fromFloat16() {
	function("fromFloat16", "takes n elements, a multiple of 8 above 0.", "x *float32, src *byte, n int")
	fromHalves(func(d []vector, n vector) {
		fromHalf(d[0], n)
		fromHalfUpper(d[1], n)
	})
}

func fromBFloat16() {
	function("fromBFloat16", "takes n elements, a multiple of 8 above 0.", "x *float32, src *byte, n int")
	fromHalves(func(d []vector, n vector) {
		highHalves(d[0], n)
		highHalvesUpper(d[1], n)
	})
}

func fromHalves(convert func(d []vector, n vector)) {
	x, src, n, half, v := param("x"), param("src"), param("n"), vectors(1)[0], vectors(2)
	loop("next", n, 8, func() {
		loadNext(src, half)
		convert(v, half)
		storeNext(x, v...)
	})
	end()
}

const infinite = 0xff << 23

func toFloat16() {
	function("toFloat16", "takes n elements, a multiple of 8 above 0. It adds to the counts of finite elements that became infinite, of others that became 0, and of NaN, whose bits are others than in Go.",
		"dst *byte, x *float32, n int, counts *[3]uint32")
	toHalves(0x477ff000, 0x33000000, nil, func(d vector, v []vector) {
		toHalf(d, v[0])
		toHalfUpper(d, v[1])
	})
}

func toBFloat16() {
	function("toBFloat16", "does as toFloat16NEON.", "dst *byte, x *float32, n int, counts *[3]uint32")
	var r *rounder
	toHalves(0x7f7f8000, 1<<15, func() { r = newRounder(bfloat16Type, forRound[bfloat16Type]...) }, func(d vector, v []vector) {
		for _, v := range v {
			r.roundBFloat16(v)
		}
		upperHalves(d, v[0])
		upperHalvesUpper(d, v[1])
	})
}

// toHalves counts elements from beyond on, below infinity, and those up to vanishing, but for 0.
func toHalves(beyond, vanishing uint32, prepare func(), convert func(d vector, v []vector)) {
	dst, x, n := param("dst"), param("x"), param("n")
	first, range_, one, small, infinity := all(beyond), all(infinite-beyond), all(1), all(vanishing), all(infinite)
	counts, v, half, a, t := vectors(3), vectors(2), vectors(1)[0], vectors(1)[0], vectors(1)[0]
	for _, c := range counts {
		clear(c)
	}
	if prepare != nil {
		prepare()
	}
	loop("next", n, 8, func() {
		loadNext(x, v...)
		for _, v := range v {
			fabs(a, v)
			sub(t, a, first)
			above(t, range_, t)
			sub(counts[0], counts[0], t) // what is true is -1
			sub(t, a, one)
			above(t, small, t)
			sub(counts[1], counts[1], t)
			above(t, a, infinity)
			sub(counts[2], counts[2], t)
		}
		convert(half, v)
		storeNext(dst, half)
	})
	to := param("counts")
	for i, c := range counts {
		sumAcross(c, c)
		line("FMOVS F%d, %d(%v)", c, 4*i, to)
	}
	end()
}
