//go:build arm64 && !purego

package kernels

func quantizeFloatBlocks(q []byte, x, scale []float32, factor float32, block int, f *MiniFloat, t Type, s *ErrorSums) {
	inBlocks(len(x), block,
		func(b, at, blocks, size int) {
			quantizeFloatBlocksNEON(&q[at], &x[at], &scale[b], factor, blocks, size, &f.least, int(t), &s.sqErr, &s.sq, &s.maxAbs)
		},
		func(b, at, end int) {
			var p padded
			copy(p.x[:], x[at:end])
			quantizeFloatBlocksNEON(&p.q[0], &p.x[0], &scale[b], factor, 1, 8, &f.least, int(t), &s.sqErr, &s.sq, &s.maxAbs)
			copy(q[at:end], p.q[:])
		})
}

func quantizeFloatColumns(q []byte, x, scale []float32, factor float32, f *MiniFloat, t Type, s *ErrorSums) {
	inColumns(len(scale), len(x),
		func(at, columns, rows int) {
			quantizeFloatColumnsNEON(&q[at], &x[at], &scale[0], factor, columns, rows, &f.least, int(t), &s.sqErr, &s.sq, &s.maxAbs)
		},
		func(column, at, end int) {
			var p padded
			fill(p.scale[:], 1)
			copy(p.x[:], x[at:end])
			copy(p.scale[:], scale[column:])
			quantizeFloatColumnsNEON(&p.q[0], &p.x[0], &p.scale[0], factor, 8, 1, &f.least, int(t), &s.sqErr, &s.sq, &s.maxAbs)
			copy(q[at:end], p.q[:])
		})
}

func tryFloat(e []float64, x, scale []float32, factor float32, f *MiniFloat, t Type) {
	if whole(len(x)) < len(x) {
		tryBy(f, e, x, scale, factor, t)
		return
	}
	tryFloatNEON(&e[0], &x[0], len(x), &scale[0], len(scale), factor, &f.least, int(t))
}

func quantizeNearestBlocks(q []byte, x, scale []float32, block int, n *Nearest, t Type, s *ErrorSums) {
	if n.ranks == nil {
		quantizeBlocksBy(n, q, x, scale, 1, block, t, s)
		return
	}
	inBlocks(len(x), block,
		func(b, at, blocks, size int) {
			quantizeNearestBlocksNEON(&q[at], &x[at], &scale[b], blocks, size,
				&n.ranks.tree, &n.ranks.values, &n.ranks.codes, int(t), &s.sqErr, &s.sq, &s.maxAbs)
		},
		func(b, at, end int) { quantizeBlocksBy(n, q[at:end], x[at:end], scale[b:b+1], 1, end-at, t, s) })
}

func quantizeNearestColumns(q []byte, x, scale []float32, n *Nearest, t Type, s *ErrorSums) {
	if n.ranks == nil {
		quantizeColumnsBy(n, q, x, scale, 1, t, s)
		return
	}
	inColumns(len(scale), len(x),
		func(at, columns, rows int) {
			quantizeNearestColumnsNEON(&q[at], &x[at], &scale[0], columns, rows,
				&n.ranks.tree, &n.ranks.values, &n.ranks.codes, int(t), &s.sqErr, &s.sq, &s.maxAbs)
		},
		func(column, at, end int) { quantizeColumnsBy(n, q[at:end], x[at:end], scale[column:], 1, t, s) })
}

func tryNearest(e []float64, x, scale []float32, n *Nearest, t Type) {
	if n.ranks == nil || whole(len(x)) < len(x) {
		tryBy(n, e, x, scale, 1, t)
		return
	}
	tryNearestNEON(&e[0], &x[0], len(x), &scale[0], len(scale), &n.ranks.tree, &n.ranks.values, &n.ranks.codes, int(t))
}
