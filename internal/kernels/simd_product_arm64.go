//go:build arm64 && !purego

package kernels

func addMultiple(y []float32, factor float32, x []float32) {
	n := whole(len(x))
	if n > 0 {
		addMultipleNEON(&y[0], &x[0], n, factor)
	}
	addMultipleGo(y[n:], factor, x[n:])
}

func multiplyTile(c []float32, stride int, from []float32, fromStride int, a, b []float32) {
	multiplyTileNEON(&c[0], stride, &from[0], fromStride, &a[0], &b[0], len(a)/TileRows)
}
