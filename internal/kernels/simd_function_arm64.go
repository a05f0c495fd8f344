//go:build arm64 && !purego

package kernels

func exp(y, x []float32) {
	n := whole(len(x))
	if n > 0 {
		expNEON(&y[0], &x[0], n)
	}
	expGo(y[n:], x[n:])
}

func rational(y, x []float32, f *Rational) {
	n := whole(len(x))
	if n > 0 {
		rationalNEON(&y[0], &x[0], n, &f.limit)
	}
	rationalGo(y[n:], x[n:], f)
}

func dot(x, y []float32) float32 {
	n := len(x) / dotLanes * dotLanes
	var sums [dotLanes]float32
	if n > 0 {
		dotNEON(&sums[0], &x[0], &y[0], n)
	}
	return dotRest(&sums, x[n:], y[n:])
}

func add(y, a, b []float32) {
	n := whole(len(y))
	if n > 0 {
		addNEON(&y[0], &a[0], &b[0], n)
	}
	addGo(y[n:], a[n:], b[n:])
}

func subtract(y, a, b []float32) {
	n := whole(len(y))
	if n > 0 {
		subtractNEON(&y[0], &a[0], &b[0], n)
	}
	subtractGo(y[n:], a[n:], b[n:])
}

func multiply(y, a, b []float32) {
	n := whole(len(y))
	if n > 0 {
		multiplyNEON(&y[0], &a[0], &b[0], n)
	}
	multiplyGo(y[n:], a[n:], b[n:])
}

func divide(y, a, b []float32) {
	n := whole(len(y))
	if n > 0 {
		divideNEON(&y[0], &a[0], &b[0], n)
	}
	divideGo(y[n:], a[n:], b[n:])
}

func clip(y, x []float32, least, most float32) {
	n := whole(len(y))
	if n > 0 {
		clipNEON(&y[0], &x[0], n, least, most)
	}
	clipGo(y[n:], x[n:], least, most)
}
