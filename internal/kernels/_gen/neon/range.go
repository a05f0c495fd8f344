package main

const signBit = 1 << 31

// eachBlock writes a loop over blocks, each of n elements.
func eachBlock(name string, blocks, n register, body func(left register)) {
	left := general()
	label(name + "Block")
	line("MOVD %v, %v", n, left)
	body(left)
	line("SUBS $1, %v", blocks)
	line("BNE %sBlock", name)
}

func absMaxBlocks() {
	function("absMaxBlocks", "takes whole blocks; 8 divides their size n.", "acc, x *float32, blocks, n int")
	acc, x, blocks, n := param("acc"), param("x"), param("blocks"), param("n")
	m, v := vectors(2), vectors(2)
	eachBlock("", blocks, n, func(left register) {
		line("FMOVS (%v), F%d", acc, m[0])
		fabs(m[0], m[0])
		clear(m[1])
		loop("next", left, 8, func() {
			loadNext(x, v...)
			for i := range v {
				fabs(v[i], v[i])
				umax(m[i], m[i], v[i])
			}
		})
		umax(m[0], m[0], m[1])
		largestUnsigned(m[0], m[0])
		line("FMOVS.P F%d, 4(%v)", m[0], acc)
	})
	end()
}

func rangeBlocks() {
	function("rangeBlocks", "takes whole blocks; 8 divides their size n.", "lo, hi, x *float32, blocks, n int")
	lo, hi, x, blocks, n := param("lo"), param("hi"), param("x"), param("blocks"), param("n")
	down, up, v, minus := vectors(2), vectors(2), vectors(2), all(signBit)
	eachBlock("", blocks, n, func(left register) {
		line("FMOVS (%v), F%d", lo, down[0])
		line("FMOVS (%v), F%d", hi, up[0])
		fabs(down[0], down[0])
		fabs(up[0], up[0])
		clear(down[1])
		clear(up[1])
		loop("next", left, 8, func() {
			loadNext(x, v...)
			for i := range v {
				widen(down[i], up[i], v[i], minus)
			}
		})
		smax(down[0], down[0], down[1])
		smax(up[0], up[0], up[1])
		largest(down[0], down[0])
		largest(up[0], up[0])
		or(down[0], down[0], minus)
		line("FMOVS.P F%d, 4(%v)", down[0], lo)
		line("FMOVS.P F%d, 4(%v)", up[0], hi)
	})
	end()
}

// widen widens a range, kept as in the parent package, by a vector.
func widen(down, up, v, minus vector) {
	smax(up, up, v)
	xor(v, v, minus)
	smax(down, down, v)
}

// eachGroup writes loops over rows of n elements, first by fours, then one by one: so what belongs to the columns is
// loaded and stored less often. The body gets the places of the rows, which it moves to the rows behind these.
func eachGroup(x, n, rows register, body func(name string, rows []register)) {
	const size = 4
	stride, group := general(), []register{x}
	for range size - 1 {
		group = append(group, general())
	}
	line("LSL $2, %v, %v", n, stride)
	label("group")
	line("SUBS $%d, %v", size, rows)
	line("BLT rest")
	for i := range size - 1 {
		line("ADD %v, %v, %v", stride, group[i], group[i+1])
	}
	body("fours", group)
	line("MOVD %v, %v", group[size-1], x)
	line("B group")
	label("rest")
	line("ADDS $%d, %v", size, rows)
	line("BEQ done")
	loop("single", rows, 1, func() { body("columns", group[:1]) })
	label("done")
}

func absMaxColumns() {
	function("absMaxColumns", "takes rows of n elements, a multiple of 8.", "acc, x *float32, n, rows int")
	acc, x, n, rows := param("acc"), param("x"), param("n"), param("rows")
	to, left := general(), general()
	m, v := vectors(2), vectors(2)
	eachGroup(x, n, rows, func(name string, group []register) {
		line("MOVD %v, %v", acc, to)
		line("MOVD %v, %v", n, left)
		loop(name, left, 8, func() {
			loadAt(to, 0, m...)
			for _, m := range m {
				fabs(m, m)
			}
			for _, row := range group {
				loadNext(row, v...)
				for i := range v {
					fabs(v[i], v[i])
					umax(m[i], m[i], v[i])
				}
			}
			storeNext(to, m...)
		})
	})
	end()
}

func rangeColumns() {
	function("rangeColumns", "takes rows of n elements, a multiple of 8.", "lo, hi, x *float32, n, rows int")
	lo, hi, x, n, rows := param("lo"), param("hi"), param("x"), param("n"), param("rows")
	toLo, toHi, left := general(), general(), general()
	down, up, v, minus := vectors(2), vectors(2), vectors(2), all(signBit)
	eachGroup(x, n, rows, func(name string, group []register) {
		line("MOVD %v, %v", lo, toLo)
		line("MOVD %v, %v", hi, toHi)
		line("MOVD %v, %v", n, left)
		loop(name, left, 8, func() {
			loadAt(toLo, 0, down...)
			loadAt(toHi, 0, up...)
			for i := range v {
				fabs(down[i], down[i])
				fabs(up[i], up[i])
			}
			for _, row := range group {
				loadNext(row, v...)
				for i := range v {
					widen(down[i], up[i], v[i], minus)
				}
			}
			for _, d := range down {
				or(d, d, minus)
			}
			storeNext(toLo, down...)
			storeNext(toHi, up...)
		})
	})
	end()
}
