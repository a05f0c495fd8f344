package main

// multiplyTile sets a tile to the sum of another one and the product of two packed matrices. Products are rounded before they are added, as
// in Go.
func multiplyTile() {
	const rows, columns = 6, 4 // columns of vectors
	function("multiplyTile", "sets a tile of c to a·b and a tile of from, whose rows are stride and fromStride apart; n is above 0.",
		"c *float32, stride int, from *float32, fromStride int, a, b *float32, n int")
	c, stride, from, fromStride := param("c"), param("stride"), param("from"), param("fromStride")
	a, b, n := param("a"), param("b"), param("n")
	var sums [rows][]vector
	for i := range sums {
		sums[i] = vectors(columns)
		for _, v := range sums[i] {
			clear(v)
		}
	}
	left, right, product := vectors(2), vectors(columns), vectors(2)
	loop("next", n, 1, func() {
		loadNext(b, right[0], right[1])
		loadNext(b, right[2], right[3])
		line("FMOVQ.P 16(%v), F%d", a, left[0])
		line("FMOVD.P 8(%v), F%d", a, left[1])
		for i, row := range sums {
			for j, sum := range row {
				p := product[j%2]
				fmulLane(p, right[j], left[i/4], i%4)
				fadd(sum, sum, p)
			}
		}
	})
	line("LSL $2, %v", stride)
	line("LSL $2, %v", fromStride)
	for _, row := range sums {
		for j := 0; j < columns; j += 2 {
			loadAt(from, 16*j, right[:2]...)
			fadd(row[j], right[0], row[j])
			fadd(row[j+1], right[1], row[j+1])
			storeAt(c, 16*j, row[j:j+2]...)
		}
		line("ADD %v, %v", stride, c)
		line("ADD %v, %v", fromStride, from)
	}
	end()
}

// addMultiple adds a multiple of x to y.
func addMultiple() {
	function("addMultiple", "takes n elements, a multiple of 8 above 0.", "y, x *float32, n int, factor float32")
	y, x, n, factor := param("y"), param("x"), param("n"), floatParam("factor")
	v, sum := vectors(2), vectors(2)
	loop("next", n, 8, func() {
		loadNext(x, v...)
		loadAt(y, 0, sum...)
		for i := range v {
			fmul(v[i], factor, v[i])
			fadd(sum[i], sum[i], v[i])
		}
		storeNext(y, sum...)
	})
	end()
}
