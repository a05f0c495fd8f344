package blocks

// Fitter finds the scale, the zero point and the codes of a block that is in memory as a whole.
// A Fitter has buffers of its own: it is not for concurrent use.
type Fitter interface {
	// Fit sets q to the codes of x, a block of finite elements. Formats without stored zero points
	// ignore zero.
	Fit(q []byte, x []float32) (scale float32, zero byte)
}

// ColumnFitter is a Fitter that can also fit blocks that lie in columns, all at once.
type ColumnFitter interface {
	Fitter
	// FitColumns fits the columns of x, rows of len(scale) elements, as Fit would one by one.
	FitColumns(q []byte, x, scale []float32, zero []byte)
}

// BlockFitter is a ColumnFitter that can also fit blocks that lie in rows, all at once.
type BlockFitter interface {
	ColumnFitter
	// FitBlocks fits the blocks of x, rows of k elements cut as by ObserveBlocks, as Fit would one by one.
	FitBlocks(q []byte, x, scale []float32, zero []byte, k, block int)
}
