package kernels

// TryFloat sets each of e to the sum of squared errors that QuantizeFloatBlock adds with a scale.
func TryFloat(e []float64, x, scale []float32, factor float32, f *MiniFloat, t Type) {
	if clear(e); len(x) > 0 && len(scale) > 0 {
		tryFloat(e[:len(scale)], x, scale, factor, f, t)
	}
}

// TryNearest sets each of e to the sum of squared errors that QuantizeNearestBlock adds with a scale.
func TryNearest(e []float64, x, scale []float32, n *Nearest, t Type) {
	if clear(e); len(x) > 0 && len(scale) > 0 {
		tryNearest(e[:len(scale)], x, scale, n, t)
	}
}

// tryBy is the plain loop over scales.
func tryBy(by quantizer, e []float64, x, scale []float32, factor float32, t Type) {
	var p piece
	var q [pieceLen]byte
	for i, s := range scale {
		var sums ErrorSums
		fill(p.scale[:min(len(x), pieceLen)], s*factor)
		for at := 0; at < len(x); at += pieceLen {
			n := min(pieceLen, len(x)-at)
			p.quantizeBy(by, q[:n], x[at:at+n], t, &sums)
		}
		e[i] = sums.Squared()
	}
}
