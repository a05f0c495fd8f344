//go:build amd64 && !purego

package kernels

// The functions below are not called for no elements.

func quantizeFloatBlocks(q []byte, x, scale []float32, factor float32, block int, f *MiniFloat, t Type, s *ErrorSums) {
	switch instructions {
	case avx512:
		quantizeFloatBlocksAVX512(&q[0], &x[0], &scale[0], factor, len(x), block,
			&f.least, int(t), &s.sqErr, &s.sq, &s.maxAbs)
	case avx2:
		quantizeFloatBlocksAVX2(&q[0], &x[0], &scale[0], factor, len(x), block,
			&f.least, int(t), &s.sqErr, &s.sq, &s.maxAbs)
	default:
		quantizeBlocksBy(f, q, x, scale, factor, block, t, s)
	}
}

func quantizeFloatColumns(q []byte, x, scale []float32, factor float32, f *MiniFloat, t Type, s *ErrorSums) {
	n := len(scale)
	switch instructions {
	case avx512:
		quantizeFloatColumnsAVX512(&q[0], &x[0], &scale[0], factor, n, len(x)/n,
			&f.least, int(t), &s.sqErr, &s.sq, &s.maxAbs)
	case avx2:
		quantizeFloatColumnsAVX2(&q[0], &x[0], &scale[0], factor, n, len(x)/n,
			&f.least, int(t), &s.sqErr, &s.sq, &s.maxAbs)
	default:
		quantizeColumnsBy(f, q, x, scale, factor, t, s)
	}
}

func quantizeNearestBlocks(q []byte, x, scale []float32, block int, n *Nearest, t Type, s *ErrorSums) {
	switch {
	case n.ranks == nil || instructions == plainGo:
		quantizeBlocksBy(n, q, x, scale, 1, block, t, s)
	case instructions == avx512:
		quantizeNearestBlocksAVX512(&q[0], &x[0], &scale[0], len(x), block,
			&n.ranks.tree, &n.ranks.values, &n.ranks.codes, int(t), &s.sqErr, &s.sq, &s.maxAbs)
	default:
		quantizeNearestBlocksAVX2(&q[0], &x[0], &scale[0], len(x), block,
			&n.ranks.tree, &n.ranks.values, &n.ranks.codes, int(t), &s.sqErr, &s.sq, &s.maxAbs)
	}
}

func quantizeNearestColumns(q []byte, x, scale []float32, n *Nearest, t Type, s *ErrorSums) {
	columns := len(scale)
	switch {
	case n.ranks == nil || instructions == plainGo:
		quantizeColumnsBy(n, q, x, scale, 1, t, s)
	case instructions == avx512:
		quantizeNearestColumnsAVX512(&q[0], &x[0], &scale[0], columns, len(x)/columns,
			&n.ranks.tree, &n.ranks.values, &n.ranks.codes, int(t), &s.sqErr, &s.sq, &s.maxAbs)
	default:
		quantizeNearestColumnsAVX2(&q[0], &x[0], &scale[0], columns, len(x)/columns,
			&n.ranks.tree, &n.ranks.values, &n.ranks.codes, int(t), &s.sqErr, &s.sq, &s.maxAbs)
	}
}

func tryFloat(e []float64, x, scale []float32, factor float32, f *MiniFloat, t Type) {
	switch instructions {
	case avx512:
		tryFloatAVX512(&e[0], &x[0], len(x), &scale[0], len(scale), factor, &f.least, int(t))
	case avx2:
		tryFloatAVX2(&e[0], &x[0], len(x), &scale[0], len(scale), factor, &f.least, int(t))
	default:
		tryBy(f, e, x, scale, factor, t)
	}
}

func tryNearest(e []float64, x, scale []float32, n *Nearest, t Type) {
	switch {
	case n.ranks == nil || instructions == plainGo:
		tryBy(n, e, x, scale, 1, t)
	case instructions == avx512:
		tryNearestAVX512(&e[0], &x[0], len(x), &scale[0], len(scale), &n.ranks.tree, &n.ranks.values, &n.ranks.codes, int(t))
	default:
		tryNearestAVX2(&e[0], &x[0], len(x), &scale[0], len(scale), &n.ranks.tree, &n.ranks.values, &n.ranks.codes, int(t))
	}
}
