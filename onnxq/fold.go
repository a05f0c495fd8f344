package onnxq

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// folder finds the values of a graph that constants determine, through the
// operators that quantized weights are decoded by.
type folder struct {
	functions bool // those of function bodies too

	graph *graphIndex
	known map[*value]*constant
	depth int
}

// What is folded is a handful of operators. A graph may be made to look like
// more.
const (
	deepestFold = 64
	mostSteps   = 256
)

// constant is a value that constants determine.
type constant struct {
	num     *numbers
	tensor  *value   // the initializer or Constant that holds most of it
	factor  *value   // the one that holds a number all of it is multiplied by; nil without
	blocked blocking // where elements were repeated to make it
	weight  *decoder // how it is decoded; nil if it is not quantized
	steps   int      // operators that compute an element
}

// blocking says that blocks of elements along an axis share a scale.
type blocking struct{ axis, block int64 }

// decoder says how a quantized weight is stored.
type decoder struct {
	form                      string // the operators that decode it
	codes, scale, zero, whole *value // what holds the parts; there may be no zero points, and no scale of the scales
	least, leastWhole         *value // what holds mins, which are taken off at last, and their scale; there may be none
	codeType                  dtype.DType
	blocking                  // block 0: one scale for each index of the axis
	perTensor                 bool
	unscaled                  bool // so far: a product with scales may follow

	// What it computes: (x - zero) · factor, spread over x. The zero may be nil,
	// and so may the factor as long as it is unscaled.
	x, z, s *numbers
	spread  spread

	// Where com.microsoft's operators have uint8: codes and zero points as they
	// are stored.
	grid, zeroGrid *grid
	middle         bool // there are no zero points: it is 2^(bits-1)
	floatZero      bool // zero points are floats
}

func newFolder(x *graphIndex) *folder {
	return &folder{graph: x, known: map[*value]*constant{}}
}

// input returns what a node reads there, if it is a constant.
func (f *folder) input(n *onnxpb.NodeProto, i int) *constant {
	if v := f.graph.source(use{n, i}); v != nil {
		return f.fold(v)
	}
	return nil
}

// fold returns the constant that a value is, or nil.
func (f *folder) fold(v *value) *constant {
	if c, ok := f.known[v]; ok {
		return c
	}
	if f.depth > deepestFold {
		return nil
	}
	f.known[v] = nil // until it is found; the graph has no cycles
	f.depth++
	c := f.find(v)
	f.depth--
	if c != nil && v.node != nil {
		c.steps = 1
		for i := range v.node.Input {
			if x := f.input(v.node, i); x != nil {
				c.steps += x.steps
			}
		}
		if c.steps > mostSteps {
			c = nil
		}
	}
	f.known[v] = c
	return c
}

func (f *folder) find(v *value) *constant {
	if v.tensor != nil {
		dtype := dtype.DType(v.tensor.GetDataType())
		p, err := f.graph.file.Payload(v.tensor)
		if err != nil || p == nil || v.input && !v.mustBeInput || v.body != nil && !f.functions || !readable(dtype) {
			return nil
		}
		return &constant{num: storedNumbers(dtype, v.tensor.GetDims(), p), tensor: v}
	}
	n := v.node
	if n == nil || len(n.Output) != 1 {
		return nil
	}
	switch domain := n.GetDomain(); {
	case domain == contribDomain && n.GetOpType() == "DequantizeLinear":
		return f.dequantizeLinear(n)
	case !standardDomain(domain):
		return nil
	}
	switch n.GetOpType() {
	case "Constant":
		return f.constantNode(n)
	case "Identity":
		return f.through(n, func(x *constant) *numbers {
			if x.weight != nil {
				return nil // no part of any form
			}
			return x.num
		})
	case "Reshape":
		return f.through(n, func(x *constant) *numbers {
			want, ok := f.integers(n, 1, maxRank)
			if !ok {
				return nil
			}
			shape, ok := reshapedTo(want, x.num.shape, intAttribute(n, "allowzero") != 0)
			if !ok {
				return nil
			}
			return x.num.reshaped(shape)
		})
	case "Cast":
		return f.castNode(n)
	case "DequantizeLinear":
		return f.dequantizeLinear(n)
	case "QuantizeLinear":
		return f.quantizeLinear(n)
	case "Gather":
		return f.gather(n)
	case "Mul":
		return f.product(n)
	case "Sub":
		return f.difference(n)
	}
	return nil
}

// readable reports whether elements of the type are numbers here.
func readable(t dtype.DType) bool {
	_, float8 := float8Types[t]
	return integerType(t) || float8 || t.Float() || t == dtype.Float4E2M1 || t == dtype.Float8E8M0
}

// through folds a node that hands on its first input. A weight whose value
// others read as well stays what it is.
func (f *folder) through(n *onnxpb.NodeProto, change func(*constant) *numbers) *constant {
	x := f.input(n, 0)
	if x == nil || x.weight != nil && !f.soleUse(n, 0) {
		return nil
	}
	made := change(x)
	if made == nil {
		return nil
	}
	return &constant{num: made, tensor: x.tensor, factor: x.factor, weight: x.weight}
}

func (f *folder) soleUse(n *onnxpb.NodeProto, i int) bool {
	v := f.graph.source(use{n, i})
	return len(v.uses) == 1 && !v.output
}

func (f *folder) castNode(n *onnxpb.NodeProto) *constant {
	to := dtype.DType(intAttribute(n, "to"))
	return f.through(n, func(x *constant) *numbers {
		if !readable(to) {
			return nil
		}
		lo, hi := x.num.dtype.Limits()
		least, greatest := to.Limits()
		switch {
		case to.Float():
			return x.num.cast(to)
		case to.Integer() && x.num.dtype.Integer() && lo >= least && hi <= greatest:
			return x.num.cast(to)
		}
		return nil
	})
}

// constantNode folds a Constant that holds a single number.
func (f *folder) constantNode(n *onnxpb.NodeProto) *constant {
	for _, a := range n.Attribute {
		switch a.GetName() {
		case "value_float":
			return &constant{num: constantNumber(a.GetF(), dtype.Float32)}
		case "value_int":
			if a.GetI() < -1<<24 || a.GetI() > 1<<24 {
				return nil // it is no float32
			}
			return &constant{num: constantNumber(float32(a.GetI()), dtype.Int64)}
		}
	}
	return nil
}

// integers reads an input that holds a few constant integers.
func (f *folder) integers(n *onnxpb.NodeProto, input int, most int64) ([]int64, bool) {
	x := f.input(n, input)
	if x == nil || x.num.stored == nil || x.num.size() > most || x.num.dtype != dtype.Int64 && x.num.dtype != dtype.Int32 {
		return nil, false
	}
	return readIntegers(x.num.stored, x.num.dtype, 0, x.num.size())
}

// dequantizeLinear folds that operator, the standard's or com.microsoft's.
func (f *folder) dequantizeLinear(n *onnxpb.NodeProto) *constant {
	x, scale := f.input(n, 0), f.input(n, 1)
	var zero *constant
	if hasInput(n, 2) {
		if zero = f.input(n, 2); zero == nil {
			return nil
		}
	}
	if x == nil || scale == nil || !codeType(x.num.dtype) || !scale.num.dtype.Float() && scale.num.dtype != dtype.Float8E8M0 {
		return nil
	}
	typ := scale.num.dtype
	if to := dtype.DType(intAttribute(n, "output_dtype")); to != 0 {
		typ = to
	}
	axis, block := intAttributeOr(n, "axis", 1), intAttribute(n, "block_size")
	s, ok := spreadOver(x.num.shape, scale.num.shape, axis, block)
	if !ok || !typ.Float() || zero != nil && (zero.num.size() != scale.num.size() || zero.num.dtype != x.num.dtype) {
		return nil
	}
	d := &decoder{
		form: "DequantizeLinear", codes: x.tensor, scale: scale.tensor, whole: scale.factor, codeType: x.num.dtype,
		blocking: blocking{counted(axis, len(x.num.shape)), block}, perTensor: s.single,
		x: x.num, s: scale.num, spread: s,
	}
	if x.weight != nil { // its codes come from QuantizeLinear
		d.form = x.weight.form + "+" + d.form
	}
	if scale.weight != nil {
		d.scale, d.whole = scale.weight.codes, scale.weight.scale
	}
	if zero != nil {
		d.z, d.zero = zero.num, zero.tensor
	}
	return &constant{num: dequantized(d.x, d.s, d.z, s, typ), tensor: x.tensor, weight: d}
}

// quantizeLinear folds what gives a float constant the codes that a
// DequantizeLinear then decodes: fake quantization.
func (f *folder) quantizeLinear(n *onnxpb.NodeProto) *constant {
	x, scale := f.input(n, 0), f.input(n, 1)
	if x == nil || scale == nil || x.weight != nil || !x.num.dtype.Float() || !scale.num.dtype.Float() {
		return nil
	}
	codes := dtype.Uint8
	if to := dtype.DType(intAttribute(n, "output_dtype")); to != 0 {
		codes = to
	}
	var z *numbers
	if hasInput(n, 2) {
		zero := f.input(n, 2)
		if zero == nil || zero.num.size() != scale.num.size() {
			return nil
		}
		z, codes = zero.num, zero.num.dtype
	}
	saturate := intAttributeOr(n, "saturate", 1) != 0
	s, ok := spreadOver(x.num.shape, scale.num.shape, intAttributeOr(n, "axis", 1), intAttribute(n, "block_size"))
	if !ok || !codeType(codes) {
		return nil
	}
	made, ok := quantized(x.num, scale.num, z, s, codes, saturate)
	if !ok {
		return nil
	}
	return &constant{num: made, tensor: x.tensor, weight: &decoder{form: "QuantizeLinear"}}
}

// gather folds a lookup: of codes in a table of values, or of the scale of each
// element's block.
func (f *folder) gather(n *onnxpb.NodeProto) *constant {
	data, index := f.input(n, 0), f.input(n, 1)
	if data == nil || index == nil || !data.num.dtype.Float() || data.weight != nil && !f.subtracted(n) || index.weight != nil {
		return nil
	}
	axis := counted(intAttributeOr(n, "axis", 0), len(data.num.shape))
	if index.tensor != nil && codeType(dtype.DType(index.tensor.tensor.GetDataType())) && len(data.num.shape) == 1 && data.num.size() <= maxTable {
		if bits := dtype.DType(index.tensor.tensor.GetDataType()).Bits(); bits <= 8 {
			return f.tableLookup(data, index)
		}
	}
	if len(index.num.shape) != 1 || index.num.stored == nil || axis < 0 || axis >= int64(len(data.num.shape)) {
		return nil
	}
	block, ok := blocksOf(index, data.num.shape[axis])
	if !ok {
		return nil
	}
	shape := slices.Clone(data.num.shape)
	shape[axis] = index.num.size()
	s, ok := spreadOver(shape, data.num.shape, axis, block)
	if !ok {
		return nil
	}
	return &constant{num: data.num.spreadOut(s, shape), tensor: data.tensor, factor: data.factor, blocked: blocking{axis, block}, weight: data.weight}
}

// subtracted tells whether a node's value is only taken off others.
func (f *folder) subtracted(n *onnxpb.NodeProto) bool {
	v := f.graph.made(n)
	return v != nil && !v.output && len(v.uses) > 0 && !slices.ContainsFunc(v.uses, func(u use) bool {
		return u.node.GetOpType() != "Sub" || u.input != 1
	})
}

// maxTable is the number of codes there are.
const maxTable = 256

func (f *folder) tableLookup(data, index *constant) *constant {
	table := make([]float32, data.num.size())
	if err := data.num.read(&arena{}, table, 0); err != nil {
		return nil
	}
	values := lookedUp(table, index.num, data.num.dtype)
	d := &decoder{form: "Gather", codes: index.tensor, codeType: dtype.DType(index.tensor.tensor.GetDataType()), perTensor: true, unscaled: true, x: values}
	return &constant{num: values, tensor: index.tensor, weight: d}
}

// blocksOf reports whether indices are 0, …, 0, 1, …, 1, 2, … with as many of
// each, but for the last, and of how many.
func blocksOf(index *constant, count int64) (block int64, ok bool) {
	n := index.num.size()
	if count == 0 || n == 0 || index.num.dtype != dtype.Int64 && index.num.dtype != dtype.Int32 {
		return 0, false
	}
	for off := int64(0); off < n; {
		list, ok := readIntegers(index.num.stored, index.num.dtype, off, min(n-off, longestRead))
		if !ok {
			return 0, false
		}
		for i, v := range list {
			at := off + int64(i)
			if block == 0 && v == 1 {
				block = at
			}
			if block == 0 && v != 0 || block != 0 && v != at/block {
				return 0, false
			}
		}
		off += int64(len(list))
	}
	if block == 0 {
		block = n
	}
	return block, divideUp(n, block) == count
}

// product folds that of a table's values with scales, or of two that are no
// weights.
func (f *folder) product(n *onnxpb.NodeProto) *constant {
	x, y := f.input(n, 0), f.input(n, 1)
	if x == nil || y == nil || x.num.dtype != y.num.dtype || !x.num.dtype.Float() {
		return nil
	}
	if y.weight != nil || len(y.num.shape) > len(x.num.shape) || len(y.num.shape) == len(x.num.shape) && y.num.size() > x.num.size() {
		x, y = y, x
	}
	s, ok := spreadBroadcast(x.num.shape, y.num.shape)
	if !ok || y.weight != nil || x.weight != nil && !x.weight.unscaled {
		return nil
	}
	made := dequantized(x.num, y.num, nil, s, x.num.dtype)
	if x.weight == nil {
		c := &constant{num: made, tensor: x.tensor, blocked: x.blocked}
		if s.single {
			c.factor = y.tensor
		}
		return c
	}
	d := *x.weight
	d.form, d.unscaled = "Gather+Mul", false
	d.scale, d.whole, d.s, d.spread = y.tensor, y.factor, y.num, s
	d.blocking, d.perTensor = y.blocked, s.single
	if !s.single && d.block == 0 { // a block is what Mul repeats
		for i, n := range x.num.shape {
			if from := len(y.num.shape) - len(x.num.shape) + i; from < 0 || y.num.shape[from] != n {
				d.blocking = blocking{int64(i), n}
			}
		}
	}
	return &constant{num: made, tensor: x.tensor, weight: &d}
}

// difference folds what takes numbers off a decoded weight.
func (f *folder) difference(n *onnxpb.NodeProto) *constant {
	x, y := f.input(n, 0), f.input(n, 1)
	if x == nil || y == nil || x.weight == nil || x.weight.unscaled || x.weight.least != nil || x.num.dtype != y.num.dtype {
		return nil
	}
	s, ok := spreadBroadcast(x.num.shape, y.num.shape)
	if !ok {
		return nil
	}
	d := *x.weight
	d.form += "+Sub"
	d.least, d.leastWhole = y.tensor, y.factor
	if y.weight != nil {
		d.leastWhole = y.weight.scale
	}
	return &constant{num: x.num.minus(y.num, s), tensor: x.tensor, weight: &d}
}
