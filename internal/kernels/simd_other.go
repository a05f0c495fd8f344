//go:build !amd64 || purego

package kernels

func (s *AffineSearch) find(f AffineFits, x, w []float32) { s.findGo(f, x, w) }

func (s *SymmetricSearch) find(scale, inverse, x, w []float32) { s.findGo(scale, inverse, x, w) }

func recode(q []byte, x, scale, least []float32, block, zero, last int) {
	recodeGo(q, x, scale, least, block, zero, last)
}

func quantizeNibbles(dst []byte, x []float32) { quantizeNibblesGo(dst, x) }

func quantizeBytes(dst []byte, x []float32) { quantizeBytesGo(dst, x) }
