package kernels

// The shape of the tiles that MultiplyTile takes.
const (
	TileRows    = 6
	TileColumns = 16
)

// MultiplyTile sets a tile to the sum of another one and the product of two matrices, c[i*stride+j] for i < TileRows
// and j < TileColumns. Row i of the other tile, which may be the same, begins at from[i*fromStride]. a is packed column by column,
// TileRows numbers each; b row by row, TileColumns numbers each. Each sum starts from 0 in their order.
func MultiplyTile(c []float32, stride int, from []float32, fromStride int, a, b []float32) {
	n := len(a) / TileRows
	_, _, _ = a[:n*TileRows], b[:n*TileColumns], c[:(TileRows-1)*stride+TileColumns]
	_ = from[:(TileRows-1)*fromStride+TileColumns]
	if n > 0 {
		multiplyTile(c, stride, from, fromStride, a[:n*TileRows], b[:n*TileColumns])
	}
}

// AddMultiple adds a multiple of x to y. Each product is rounded before it is added.
func AddMultiple(y []float32, factor float32, x []float32) {
	if len(x) > 0 {
		addMultiple(y[:len(x)], factor, x)
	}
}

func addMultipleGo(y []float32, factor float32, x []float32) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] += float32(factor * v)
	}
}

func multiplyTileGo(c []float32, stride int, from []float32, fromStride int, a, b []float32) {
	var sums [TileRows][TileColumns]float32
	for len(a) > 0 {
		right := (*[TileColumns]float32)(b)
		for i, left := range a[:TileRows] {
			for j, v := range right {
				sums[i][j] += float32(left * v)
			}
		}
		a, b = a[TileRows:], b[TileColumns:]
	}
	for i := range sums {
		row, other := c[i*stride:][:TileColumns], from[i*fromStride:][:TileColumns]
		for j, v := range sums[i] {
			row[j] = other[j] + v
		}
	}
}
