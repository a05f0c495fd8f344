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
	whole := len(x) / dotLanes * dotLanes
	if whole == 0 || instructions == plainGo {
		return dotGo(x, y)
	}
	var sums [dotLanes]float32
	if instructions == avx512 {
		dotAVX512(&sums[0], &x[0], &y[0], whole)
	} else {
		dotAVX2(&sums[0], &x[0], &y[0], whole)
	}
	return dotRest(&sums, x[whole:], y[whole:])
}
