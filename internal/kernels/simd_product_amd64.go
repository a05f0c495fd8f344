//go:build amd64 && !purego

package kernels

//go:generate sh -c "cd _gen && go run . -products -pkg kernels -out ../simd_product_amd64.s -stubs ../simd_product_stubs_amd64.go"

func addMultiple(y []float32, factor float32, x []float32) {
	switch instructions {
	case avx512:
		addMultipleAVX512(&y[0], &x[0], len(x), factor)
	case avx2:
		addMultipleAVX2(&y[0], &x[0], len(x), factor)
	default:
		addMultipleGo(y, factor, x)
	}
}

func multiplyTile(c []float32, stride int, from []float32, fromStride int, a, b []float32) {
	if instructions == plainGo {
		multiplyTileGo(c, stride, from, fromStride, a, b)
		return
	}
	multiplyTileAVX2(&c[0], stride, &from[0], fromStride, &a[0], &b[0], len(a)/TileRows)
}
