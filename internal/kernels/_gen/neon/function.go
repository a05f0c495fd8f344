package main

import "math"

// eachVector writes a loop over the vectors of n elements, two at a time. The body changes them.
func eachVector(y, x, n register, body func(v vector)) {
	v := vectors(2)
	loop("next", n, 8, func() {
		loadNext(x, v...)
		for _, v := range v {
			body(v)
		}
		storeNext(y, v...)
	})
	end()
}

// atMost and atLeast limit v; a NaN stays.
func atMost(v, most, mask vector) {
	fcgt(mask, v, most)
	insert(v, most, mask)
}

func atLeast(v, least, mask vector) {
	fcgt(mask, least, v)
	insert(v, least, mask)
}

// exponential computes in the steps of the Go function.
func exponential() {
	function("exp", "takes n elements, a multiple of 8 above 0.", "y, x *float32, n int")
	number := func(v float32) vector { return all(math.Float32bits(v)) }
	most, least, log2, whole, ln2, ln2Rest := number(89), number(-104), number(math.Log2E), number(3<<22), number(0.693359375), number(-2.12194440e-4)
	var terms []vector
	for _, t := range []float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1} {
		terms = append(terms, number(t))
	}
	one, bias := number(1), all(127)
	shifted, n, sum, product := vectors(1)[0], vectors(1)[0], vectors(1)[0], vectors(1)[0]
	eachVector(param("y"), param("x"), param("n"), func(v vector) {
		atMost(v, most, product)
		atLeast(v, least, product)
		fmul(shifted, v, log2)
		fadd(shifted, shifted, whole)
		fsub(n, shifted, whole)
		for _, part := range []vector{ln2, ln2Rest} {
			fmul(product, n, part)
			fsub(v, v, product)
		}
		fmul(sum, terms[0], v)
		for _, t := range terms[1:] {
			fadd(sum, sum, t)
			fmul(sum, sum, v)
		}
		fmul(sum, sum, v)
		fadd(sum, sum, v)
		fadd(v, sum, one)
		sub(shifted, shifted, whole)
		sshr(n, shifted, 1)
		sub(shifted, shifted, n)
		for _, half := range []vector{n, shifted} {
			add(half, half, bias)
			shl(half, half, 23)
			fmul(v, v, half)
		}
	})
}

// arithmetic combines pairs of elements by one instruction.
func arithmetic(name string, instruction binary) {
	function(name, "takes n elements, a multiple of 8 above 0.", "y, a, b *float32, n int")
	y, a, b, n, v, w := param("y"), param("a"), param("b"), param("n"), vectors(2), vectors(2)
	loop("next", n, 8, func() {
		loadNext(a, v...)
		loadNext(b, w...)
		for i := range v {
			instruction(v[i], v[i], w[i])
		}
		storeNext(y, v...)
	})
	end()
}

func clip() {
	function("clip", "takes n elements, a multiple of 8 above 0.", "y, x *float32, n int, least, most float32")
	least, most, mask := floatParam("least"), floatParam("most"), vectors(1)[0]
	eachVector(param("y"), param("x"), param("n"), func(v vector) {
		atLeast(v, least, mask)
		atMost(v, most, mask)
	})
}

// rational computes an odd rational function, whose limit and coefficients are at f.
func rational() {
	function("rational", "takes n elements, a multiple of 8 above 0. f has the limit and the coefficients.", "y, x *float32, n int, f *float32")
	f, numbers := param("f"), []vector{}
	for i := range 13 {
		numbers = append(numbers, number(f, 4*i))
	}
	limit, lower, one, minus := numbers[0], vectors(1)[0], all(math.Float32bits(1)), all(math.Float32bits(-1))
	fneg(lower, limit)
	square, p, q := vectors(1)[0], vectors(1)[0], vectors(1)[0]
	eachVector(param("y"), param("x"), param("n"), func(v vector) {
		atMost(v, limit, q)
		atLeast(v, lower, q)
		fmul(square, v, v)
		fmul(p, numbers[1], square)
		fmul(q, numbers[7], square)
		for k := 1; k < 6; k++ {
			fadd(p, p, numbers[1+k])
			fadd(q, q, numbers[7+k])
			if k < 5 {
				fmul(p, p, square)
				fmul(q, q, square)
			}
		}
		fmul(v, v, p)
		fdiv(v, v, q)
		atMost(v, one, q)
		atLeast(v, minus, q)
	})
}

func dot() {
	function("dot", "sets 32 sums; n is a multiple of 32 above 0.", "sums, x, y *float32, n int")
	sums, x, y, n, totals, v, w := param("sums"), param("x"), param("y"), param("n"), vectors(8), vectors(2), vectors(2)
	for _, t := range totals {
		clear(t)
	}
	loop("next", n, 32, func() {
		for i := 0; i < len(totals); i += 2 {
			loadNext(x, v...)
			loadNext(y, w...)
			for j := range v {
				fmul(v[j], v[j], w[j])
				fadd(totals[i+j], totals[i+j], v[j])
			}
		}
	})
	for i := 0; i < len(totals); i += 2 {
		storeNext(sums, totals[i:i+2]...)
	}
	end()
}
