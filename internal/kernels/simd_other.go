//go:build !amd64 || purego

package kernels

func quantizeNearestBlocks(q []byte, x, scale []float32, block int, n *Nearest, t Type, sums *ErrorSums) {
	quantizeBlocksBy(n, q, x, scale, 1, block, t, sums)
}

func quantizeNearestColumns(q []byte, x, scale []float32, n *Nearest, t Type, sums *ErrorSums) {
	quantizeColumnsBy(n, q, x, scale, 1, t, sums)
}

func tryNearest(e []float64, x, scale []float32, n *Nearest, t Type) { tryBy(n, e, x, scale, 1, t) }

func (s *AffineSearch) find(f AffineFits, x, w []float32) { s.findGo(f, x, w) }

func (s *SymmetricSearch) find(scale, inverse, x, w []float32) { s.findGo(scale, inverse, x, w) }

func recode(q []byte, x, scale, least []float32, block, zero, last int) {
	recodeGo(q, x, scale, least, block, zero, last)
}

func quantizeNibbles(dst []byte, x []float32) { quantizeNibblesGo(dst, x) }

func quantizeBytes(dst []byte, x []float32) { quantizeBytesGo(dst, x) }

func exp(y, x []float32) { expGo(y, x) }

func rational(y, x []float32, f *Rational) { rationalGo(y, x, f) }

func dot(x, y []float32) float32 { return dotGo(x, y) }

func add(y, a, b []float32) { addGo(y, a, b) }

func subtract(y, a, b []float32) { subtractGo(y, a, b) }

func multiply(y, a, b []float32) { multiplyGo(y, a, b) }

func divide(y, a, b []float32) { divideGo(y, a, b) }

func clip(y, x []float32, least, most float32) { clipGo(y, x, least, most) }
