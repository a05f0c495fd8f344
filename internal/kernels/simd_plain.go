//go:build (!amd64 && !arm64) || purego

package kernels

func absMaxBlocks(acc, x []float32, block int) { absMaxBlocksGo(acc, x, block) }

func absMaxColumns(acc, x []float32) { absMaxColumnsGo(acc, x) }

func rangeBlocks(lo, hi, x []float32, block int) { rangeBlocksGo(lo, hi, x, block) }

func rangeColumns(lo, hi, x []float32) { rangeColumnsGo(lo, hi, x) }

func quantizeBlocks(q []byte, x, scale []float32, zero []byte, block int, f Format, sums *ErrorSums) {
	quantizeBlocksGo(q, x, scale, zero, block, f, sums)
}

func quantizeColumns(q []byte, x, scale []float32, zero []byte, f Format, sums *ErrorSums) {
	quantizeColumnsGo(q, x, scale, zero, f, sums)
}

func roundUpColumns(q []byte, x, factor, offset []float32, steps float32, least byte) {
	roundUpColumnsGo(q, x, factor, offset, steps, least)
}

func dequantizeBlock([]float32, []byte, float32, int32, int32) int { return 0 }

func dequantizeColumns([]float32, []byte, []float32, []byte, int32, int32) int { return 0 }

func pack4(dst, q []byte) { pack4Go(dst, q) }

func pack2(dst, q []byte) { pack2Go(dst, q) }

func unpack4(q, src []byte, sign byte) { unpack4Go(q, src, sign) }

func unpack2(q, src []byte, sign byte) { unpack2Go(q, src, sign) }

func (s *ErrorSums) add(x, y []float32) { s.addGo(x, y) }

func addMultiple(y []float32, factor float32, x []float32) { addMultipleGo(y, factor, x) }

func multiplyTile(c []float32, stride int, from []float32, fromStride int, a, b []float32) {
	multiplyTileGo(c, stride, from, fromStride, a, b)
}

func (s *GridSearch) find(x []float32, all bool) { s.findGo(x, all) }

func (w *WeightedSums) add(x []float32, weights []float64) { w.addGo(x, weights) }

func addGridErrors(e *[GridLanes]float64, x []float32, grid, scale *[GridLanes]float32, zero *[GridLanes]byte, f Format) {
	addGridErrorsGo(e, x, grid, scale, zero, f)
}

func fromFloat16(x []float32, src []byte) { fromFloat16Go(x, src) }

func fromBFloat16(x []float32, src []byte) { fromBFloat16Go(x, src) }

func toFloat16(dst []byte, x []float32) (beyond, vanished int) { return toFloat16Go(dst, x) }

func toBFloat16(dst []byte, x []float32) (beyond, vanished int) { return toBFloat16Go(dst, x) }

func quantizeFloatBlocks(q []byte, x, scale []float32, factor float32, block int, f *MiniFloat, t Type, sums *ErrorSums) {
	quantizeBlocksBy(f, q, x, scale, factor, block, t, sums)
}

func quantizeFloatColumns(q []byte, x, scale []float32, factor float32, f *MiniFloat, t Type, sums *ErrorSums) {
	quantizeColumnsBy(f, q, x, scale, factor, t, sums)
}

func tryFloat(e []float64, x, scale []float32, factor float32, f *MiniFloat, t Type) {
	tryBy(f, e, x, scale, factor, t)
}

func quantizeNearestBlocks(q []byte, x, scale []float32, block int, n *Nearest, t Type, sums *ErrorSums) {
	quantizeBlocksBy(n, q, x, scale, 1, block, t, sums)
}

func quantizeNearestColumns(q []byte, x, scale []float32, n *Nearest, t Type, sums *ErrorSums) {
	quantizeColumnsBy(n, q, x, scale, 1, t, sums)
}

func tryNearest(e []float64, x, scale []float32, n *Nearest, t Type) { tryBy(n, e, x, scale, 1, t) }

func exp(y, x []float32) { expGo(y, x) }

func rational(y, x []float32, f *Rational) { rationalGo(y, x, f) }

func dot(x, y []float32) float32 { return dotGo(x, y) }

func add(y, a, b []float32) { addGo(y, a, b) }

func subtract(y, a, b []float32) { subtractGo(y, a, b) }

func multiply(y, a, b []float32) { multiplyGo(y, a, b) }

func divide(y, a, b []float32) { divideGo(y, a, b) }

func clip(y, x []float32, least, most float32) { clipGo(y, x, least, most) }

func (s *AffineSearch) find(f AffineFits, x, w []float32) { s.findGo(f, x, w) }

func (s *SymmetricSearch) find(scale, inverse, x, w []float32) { s.findGo(scale, inverse, x, w) }

func recode(q []byte, x, scale, least []float32, block, zero, last int) {
	recodeGo(q, x, scale, least, block, zero, last)
}
