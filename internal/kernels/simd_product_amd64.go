//go:build amd64 && !purego

package kernels

//go:generate sh -c "cd _gen && go run . -products -pkg kernels -out ../simd_product_amd64.s -stubs ../simd_product_stubs_amd64.go"

func multiplyTile(c []float32, stride int, a, b []float32) {
	if instructions == plainGo {
		multiplyTileGo(c, stride, a, b)
		return
	}
	multiplyTileAVX2(&c[0], stride, &a[0], &b[0], len(a)/TileRows)
}
