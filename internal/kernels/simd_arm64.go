//go:build arm64 && !purego

package kernels

//go:generate sh -c "cd _gen && go run ./neon ../simd_arm64.s ../simd_stubs_arm64.go"

// Every arm64 processor has NEON. The assembly takes whole vectors, plain Go the rest.

func addMultiple(y []float32, factor float32, x []float32) {
	n := len(x) &^ 7
	if n > 0 {
		addMultipleNEON(&y[0], &x[0], n, factor)
	}
	addMultipleGo(y[n:], factor, x[n:])
}

func multiplyTile(c []float32, stride int, a, b []float32) {
	multiplyTileNEON(&c[0], stride, &a[0], &b[0], len(a)/TileRows)
}
