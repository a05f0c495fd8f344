package opset

// oneAxis adapts Softmax, LogSoftmax and Hardmax. Before opset 13 they flattened
// their input to a matrix, [dimensions before axis, dimensions from axis on], and
// normalized its rows. Since then they normalize along one dimension. For the last
// dimension both are the same. Otherwise:
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
	if e.model.to < 14 {
		e.finish("Reshape", []string{shape})
		return
	}
	// Without allowzero, a 0 in the shape would copy the dimension of the input.
	e.finish("Reshape", []string{shape}, intAttribute("allowzero", 1))
}
