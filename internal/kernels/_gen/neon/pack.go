package main

// The loops below take 64 codes at a time.

// packPairs sets d to the pairs of the numbers in a and b, each of as many bits. What lies above a number is
// overwritten by the next one, or is above the pair.
func packPairs(d, a, b, odd vector, bits int) {
	oddBytes(odd, a, b)
	evenBytes(d, a, b)
	sliBytes(d, odd, bits)
}

func pack4() {
	function("pack4", "takes n codes, a multiple of 64 above 0.", "dst, q *byte, n int")
	dst, q, n := param("dst"), param("q"), param("n")
	v, odd := vectors(4), vectors(1)[0]
	loop("next", n, 64, func() {
		loadNext(q, v[:2]...)
		loadNext(q, v[2:]...)
		packPairs(v[0], v[0], v[1], odd, 4)
		packPairs(v[1], v[2], v[3], odd, 4)
		storeNext(dst, v[:2]...)
	})
	end()
}

func pack2() {
	function("pack2", "takes n codes, a multiple of 64 above 0.", "dst, q *byte, n int")
	dst, q, n := param("dst"), param("q"), param("n")
	v, odd := vectors(4), vectors(1)[0]
	loop("next", n, 64, func() {
		loadNext(q, v[:2]...)
		loadNext(q, v[2:]...)
		packPairs(v[0], v[0], v[1], odd, 2)
		packPairs(v[1], v[2], v[3], odd, 2)
		packPairs(v[0], v[0], v[1], odd, 4)
		storeNext(dst, v[0])
	})
	end()
}

// eachSign writes a loop for codes with a sign, and one for those without. The body gets how to shift to the right.
func eachSign(n register, body func(down shift)) {
	line("CBNZ %v, signed", param("sign"))
	loop("unsignedNext", n, 64, func() { body(ushrBytes) })
	end()
	label("signed")
	loop("signedNext", n, 64, func() { body(sshrBytes) })
	end()
}

// part sets d to the bits of n from a place on.
func part(d, n vector, from, bits int, down shift) {
	if above := 8 - from - bits; above > 0 {
		shlBytes(d, n, above)
		n = d
	}
	down(d, n, 8-bits)
}

func unpack4() {
	function("unpack4", "takes n codes, a multiple of 64 above 0.", "q, src *byte, n int, sign byte")
	q, src, n := param("q"), param("src"), param("n")
	v, c, out := vectors(2), vectors(2), vectors(2)
	eachSign(n, func(down shift) {
		loadNext(src, v...)
		for _, v := range v {
			part(c[0], v, 0, 4, down)
			part(c[1], v, 4, 4, down)
			zipBytes(out[0], c[0], c[1])
			zipBytes2(out[1], c[0], c[1])
			storeNext(q, out...)
		}
	})
}

func unpack2() {
	function("unpack2", "takes n codes, a multiple of 64 above 0.", "q, src *byte, n int, sign byte")
	q, src, n := param("q"), param("src"), param("n")
	v, c, pairs, out := vectors(1)[0], vectors(4), vectors(2), vectors(2)
	eachSign(n, func(down shift) {
		loadNext(src, v)
		for i, c := range c {
			part(c, v, 2*i, 2, down)
		}
		for _, zip := range []binary{zipBytes, zipBytes2} {
			zip(pairs[0], c[0], c[1])
			zip(pairs[1], c[2], c[3])
			zipHalves(out[0], pairs[0], pairs[1])
			zipHalves2(out[1], pairs[0], pairs[1])
			storeNext(q, out...)
		}
	})
}
