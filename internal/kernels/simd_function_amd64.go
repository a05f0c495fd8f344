//go:build amd64 && !purego

package kernels

//go:generate sh -c "cd _gen && go run . -functions -pkg kernels -out ../simd_function_amd64.s -stubs ../simd_function_stubs_amd64.go"

func exp(y, x []float32) {
	switch instructions {
	case avx512:
		expAVX512(&y[0], &x[0], len(x))
	case avx2:
		expAVX2(&y[0], &x[0], len(x))
	default:
		expGo(y, x)
	}
}

func rational(y, x []float32, f *Rational) {
	switch instructions {
	case avx512:
		rationalAVX512(&y[0], &x[0], len(x), &f.limit)
	case avx2:
		rationalAVX2(&y[0], &x[0], len(x), &f.limit)
	default:
		rationalGo(y, x, f)
	}
}

func dot(x, y []float32) float32 {
	switch instructions {
	case avx512:
		return dotAVX512(&x[0], &y[0], len(x))
	case avx2:
		return dotAVX2(&x[0], &y[0], len(x))
	}
	return dotGo(x, y)
}

func add(y, a, b []float32) {
	switch instructions {
	case avx512:
		addAVX512(&y[0], &a[0], &b[0], len(y))
	case avx2:
		addAVX2(&y[0], &a[0], &b[0], len(y))
	default:
		addGo(y, a, b)
	}
}

func subtract(y, a, b []float32) {
	switch instructions {
	case avx512:
		subtractAVX512(&y[0], &a[0], &b[0], len(y))
	case avx2:
		subtractAVX2(&y[0], &a[0], &b[0], len(y))
	default:
		subtractGo(y, a, b)
	}
}

func multiply(y, a, b []float32) {
	switch instructions {
	case avx512:
		multiplyAVX512(&y[0], &a[0], &b[0], len(y))
	case avx2:
		multiplyAVX2(&y[0], &a[0], &b[0], len(y))
	default:
		multiplyGo(y, a, b)
	}
}

func divide(y, a, b []float32) {
	switch instructions {
	case avx512:
		divideAVX512(&y[0], &a[0], &b[0], len(y))
	case avx2:
		divideAVX2(&y[0], &a[0], &b[0], len(y))
	default:
		divideGo(y, a, b)
	}
}

func clip(y, x []float32, least, most float32) {
	switch instructions {
	case avx512:
		clipAVX512(&y[0], &x[0], len(y), least, most)
	case avx2:
		clipAVX2(&y[0], &x[0], len(y), least, most)
	default:
		clipGo(y, x, least, most)
	}
}
