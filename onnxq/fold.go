package onnxq

import (
	"encoding/binary"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// folder finds the values of a graph that constants determine, through the
// operators that quantized weights are decoded by.
type folder struct {
	functions bool // those of function bodies too

	model *Model
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
	*numbers
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

func newFolder(m *Model) *folder {
	return &folder{model: m, known: map[*value]*constant{}}
}

// input returns what a node reads there, if it is a constant.
func (f *folder) input(n *onnxpb.NodeProto, i int) *constant {
	if v := f.model.index.source(use{n, i}); v != nil {
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
		typ := dtype.DType(v.tensor.GetDataType())
		p, err := f.model.file.Payload(v.tensor)
		if err != nil || p == nil || v.input && !v.mustBeInput || v.body != nil && !f.functions || !readable(typ) {
			return nil
		}
		return &constant{numbers: storedNumbers(v.tensor, p), tensor: v}
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
			return x.numbers
		})
	case "Reshape":
		return f.through(n, func(x *constant) *numbers {
			shape, ok := f.shapeOf(n, x.shape)
			if !ok {
				return nil
			}
			return x.reshaped(shape)
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
	return &constant{numbers: made, tensor: x.tensor, factor: x.factor, weight: x.weight}
}

func (f *folder) soleUse(n *onnxpb.NodeProto, i int) bool {
	v := f.model.index.source(use{n, i})
	return len(v.uses) == 1 && !v.output
}

func (f *folder) castNode(n *onnxpb.NodeProto) *constant {
	to := dtype.DType(intAttribute(n, "to"))
	return f.through(n, func(x *constant) *numbers {
		if !readable(to) {
			return nil
		}
		lo, hi := x.dtype.Limits()
		least, greatest := to.Limits()
		switch {
		case to.Float():
			return x.cast(to)
		case to.Integer() && x.dtype.Integer() && lo >= least && hi <= greatest:
			return x.cast(to)
		}
		return nil
	})
}

// constantNode folds a Constant that holds a single number.
func (f *folder) constantNode(n *onnxpb.NodeProto) *constant {
	for _, a := range n.Attribute {
		switch a.GetName() {
		case "value_float":
			return &constant{numbers: constantNumber(a.GetF(), dtype.Float32)}
		case "value_int":
			if a.GetI() < -1<<24 || a.GetI() > 1<<24 {
				return nil // it is no float32
			}
			return &constant{numbers: constantNumber(float32(a.GetI()), dtype.Int64)}
		}
	}
	return nil
}

// shapeOf finds the shape that a Reshape gives.
func (f *folder) shapeOf(n *onnxpb.NodeProto, from []int64) ([]int64, bool) {
	shape, ok := f.integers(n, 1, maxRank)
	if !ok {
		return nil, false
	}
	known, free := int64(1), -1
	for i, d := range shape {
		switch {
		case d == 0 && intAttribute(n, "allowzero") == 0:
			if i >= len(from) {
				return nil, false
			}
			shape[i] = from[i]
		case d == -1 && free < 0:
			free = i
			continue
		case d < 0:
			return nil, false
		}
		known *= max(shape[i], 1)
		if known > math.MaxInt32*int64(math.MaxInt16) {
			return nil, false
		}
	}
	size, _ := dtype.Elements(from)
	if free >= 0 {
		if size%known != 0 {
			return nil, false
		}
		shape[free] = size / known
	}
	n2, err := dtype.Elements(shape)
	return shape, err == nil && n2 == size
}

// maxRank is more axes than any tensor here has.
const maxRank = 64

// integers reads an input that holds a few constant integers.
func (f *folder) integers(n *onnxpb.NodeProto, input int, most int64) ([]int64, bool) {
	x := f.input(n, input)
	if x == nil || x.payload == nil || x.size() > most || x.dtype != dtype.Int64 && x.dtype != dtype.Int32 {
		return nil, false
	}
	return readIntegers(x, 0, x.size())
}

// readIntegers reads elements of type int32 or int64.
func readIntegers(x *constant, off, n int64) ([]int64, bool) {
	size := x.dtype.Bits() / 8
	raw := make([]byte, n*size)
	if readAt(x.payload, raw, off*size) != nil {
		return nil, false
	}
	list := make([]int64, n)
	for i := range list {
		if size == 4 {
			list[i] = int64(int32(binary.LittleEndian.Uint32(raw[4*i:])))
		} else {
			list[i] = int64(binary.LittleEndian.Uint64(raw[8*i:]))
		}
	}
	return list, true
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
	if x == nil || scale == nil || !codeType(x.dtype) || !scale.dtype.Float() && scale.dtype != dtype.Float8E8M0 {
		return nil
	}
	typ := scale.dtype
	if to := dtype.DType(intAttribute(n, "output_dtype")); to != 0 {
		typ = to
	}
	axis, block := axisOf(n, 1), intAttribute(n, "block_size")
	s, ok := spreadOver(x.shape, scale.shape, axis, block)
	if !ok || !typ.Float() || zero != nil && (zero.size() != scale.size() || zero.dtype != x.dtype) {
		return nil
	}
	d := &decoder{
		form: "DequantizeLinear", codes: x.tensor, scale: scale.tensor, whole: scale.factor, codeType: x.dtype,
		blocking: blocking{counted(axis, len(x.shape)), block}, perTensor: s.single,
		x: x.numbers, s: scale.numbers, spread: s,
	}
	if x.weight != nil { // its codes come from QuantizeLinear
		d.form = x.weight.form + "+" + d.form
	}
	if scale.weight != nil {
		d.scale, d.whole = scale.weight.codes, scale.weight.scale
	}
	if zero != nil {
		d.z, d.zero = zero.numbers, zero.tensor
	}
	return &constant{numbers: dequantized(d.x, d.s, d.z, s, typ), tensor: x.tensor, weight: d}
}

// quantizeLinear folds what gives a float constant the codes that a
// DequantizeLinear then decodes: fake quantization.
func (f *folder) quantizeLinear(n *onnxpb.NodeProto) *constant {
	x, scale := f.input(n, 0), f.input(n, 1)
	if x == nil || scale == nil || x.weight != nil || !x.dtype.Float() || !scale.dtype.Float() {
		return nil
	}
	codes := dtype.Uint8
	if to := dtype.DType(intAttribute(n, "output_dtype")); to != 0 {
		codes = to
	}
	var z *numbers
	if hasInput(n, 2) {
		zero := f.input(n, 2)
		if zero == nil || zero.size() != scale.size() {
			return nil
		}
		z, codes = zero.numbers, zero.dtype
	}
	saturate := true
	for _, a := range n.Attribute {
		if a.GetName() == "saturate" {
			saturate = a.GetI() != 0
		}
	}
	s, ok := spreadOver(x.shape, scale.shape, axisOf(n, 1), intAttribute(n, "block_size"))
	if !ok || !codeType(codes) {
		return nil
	}
	made, ok := quantized(x.numbers, scale.numbers, z, s, codes, saturate)
	if !ok {
		return nil
	}
	return &constant{numbers: made, tensor: x.tensor, weight: &decoder{form: "QuantizeLinear"}}
}

// gather folds a lookup: of codes in a table of values, or of the scale of each
// element's block.
func (f *folder) gather(n *onnxpb.NodeProto) *constant {
	data, index := f.input(n, 0), f.input(n, 1)
	if data == nil || index == nil || !data.dtype.Float() || data.weight != nil && !f.subtracted(n) || index.weight != nil {
		return nil
	}
	axis := counted(axisOf(n, 0), len(data.shape))
	if index.tensor != nil && codeType(dtype.DType(index.tensor.tensor.GetDataType())) && len(data.shape) == 1 && data.size() <= maxTable {
		if bits := dtype.DType(index.tensor.tensor.GetDataType()).Bits(); bits <= 8 {
			return f.tableLookup(data, index)
		}
	}
	if len(index.shape) != 1 || index.payload == nil || axis < 0 || axis >= int64(len(data.shape)) {
		return nil
	}
	block, ok := blocksOf(index, data.shape[axis])
	if !ok {
		return nil
	}
	shape := slices.Clone(data.shape)
	shape[axis] = index.size()
	s, ok := spreadOver(shape, data.shape, axis, block)
	if !ok {
		return nil
	}
	return &constant{numbers: data.spreadOut(s, shape), tensor: data.tensor, factor: data.factor, blocked: blocking{axis, block}, weight: data.weight}
}

// subtracted tells whether a node's value is only taken off others.
func (f *folder) subtracted(n *onnxpb.NodeProto) bool {
	v := f.model.index.made(n)
	return v != nil && !v.output && len(v.uses) > 0 && !slices.ContainsFunc(v.uses, func(u use) bool {
		return u.node.GetOpType() != "Sub" || u.input != 1
	})
}

// maxTable is the number of codes there are.
const maxTable = 256

func (f *folder) tableLookup(data, index *constant) *constant {
	table := make([]float32, data.size())
	if err := data.read(&arena{}, table, 0); err != nil {
		return nil
	}
	values := lookedUp(table, index.numbers, data.dtype)
	d := &decoder{form: "Gather", codes: index.tensor, codeType: dtype.DType(index.tensor.tensor.GetDataType()), perTensor: true, unscaled: true, x: values}
	return &constant{numbers: values, tensor: index.tensor, weight: d}
}

// blocksOf reports whether indices are 0, …, 0, 1, …, 1, 2, … with as many of
// each, but for the last, and of how many.
func blocksOf(index *constant, count int64) (block int64, ok bool) {
	n := index.size()
	if count == 0 || n == 0 || index.dtype != dtype.Int64 && index.dtype != dtype.Int32 {
		return 0, false
	}
	for off := int64(0); off < n; {
		list, ok := readIntegers(index, off, min(n-off, longestRead))
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
	if x == nil || y == nil || x.dtype != y.dtype || !x.dtype.Float() {
		return nil
	}
	if y.weight != nil || len(y.shape) > len(x.shape) || len(y.shape) == len(x.shape) && y.size() > x.size() {
		x, y = y, x
	}
	s, ok := spreadBroadcast(x.shape, y.shape)
	if !ok || y.weight != nil || x.weight != nil && !x.weight.unscaled {
		return nil
	}
	made := dequantized(x.numbers, y.numbers, nil, s, x.dtype)
	if x.weight == nil {
		c := &constant{numbers: made, tensor: x.tensor, blocked: x.blocked}
		if s.single {
			c.factor = y.tensor
		}
		return c
	}
	d := *x.weight
	d.form, d.unscaled = "Gather+Mul", false
	d.scale, d.whole, d.s, d.spread = y.tensor, y.factor, y.numbers, s
	d.blocking, d.perTensor = y.blocked, s.single
	if !s.single && d.block == 0 { // a block is what Mul repeats
		for i, n := range x.shape {
			if from := len(y.shape) - len(x.shape) + i; from < 0 || y.shape[from] != n {
				d.blocking = blocking{int64(i), n}
			}
		}
	}
	return &constant{numbers: made, tensor: x.tensor, weight: &d}
}

// difference folds what takes numbers off a decoded weight.
func (f *folder) difference(n *onnxpb.NodeProto) *constant {
	x, y := f.input(n, 0), f.input(n, 1)
	if x == nil || y == nil || x.weight == nil || x.weight.unscaled || x.weight.least != nil || x.dtype != y.dtype {
		return nil
	}
	s, ok := spreadBroadcast(x.shape, y.shape)
	if !ok {
		return nil
	}
	d := *x.weight
	d.form += "+Sub"
	d.least, d.leastWhole = y.tensor, y.factor
	if y.weight != nil {
		d.leastWhole = y.weight.scale
	}
	return &constant{numbers: x.minus(y.numbers, s), tensor: x.tensor, weight: &d}
}

// axisOf reads the attribute axis.
func axisOf(n *onnxpb.NodeProto, otherwise int64) int64 {
	for _, a := range n.Attribute {
		if a.GetName() == "axis" {
			return a.GetI()
		}
	}
	return otherwise
}

// counted turns an axis that may count from the end into one that does not.
func counted(axis int64, rank int) int64 {
	if axis < 0 {
		return axis + int64(rank)
	}
	return axis
}
