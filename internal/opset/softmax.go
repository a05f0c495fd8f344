package opset

// oneAxis adapts Softmax, LogSoftmax and Hardmax. Before opset 13 they took
// their input as a matrix of the dimensions before axis by those from axis on,
// and worked on its rows; since then they work along one dimension. The two
// agree on the last dimension. Elsewhere:
//
//	x ── Flatten(axis) ── Softmax(axis=-1) ── Reshape ── y
//	└────────────────────── Shape ───────────────┘
func oneAxis(e *edit) error {
	axis := e.take("axis")
	if axis == nil {
		axis = intAttribute("axis", 1)
	}
	x := e.input(0)
	last := intAttribute("axis", -1)
	if rank := e.rank(x); axis.GetRefAttrName() == "" && (axis.GetI() == -1 || rank != unknownRank && axis.GetI() == int64(rank-1)) {
		e.set(last)
		return nil
	}
	e.set(last)
	e.setInput(0, e.produce("Flatten", []string{x}, axis))
	e.reshapeLike(x)
	return nil
}

// reshapeLike gives the edited node's first output the shape of a value.
func (e *edit) reshapeLike(x string) {
	shape := e.produce("Shape", []string{x})
	if e.to < 14 {
		e.finish("Reshape", []string{shape})
		return
	}
	// Without allowzero a dimension of 0 would be one to be copied.
	e.finish("Reshape", []string{shape}, intAttribute("allowzero", 1))
}
