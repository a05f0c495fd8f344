package recognize

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
)

// Recognizer folds the values of a graph that depend on constants alone, through the
// operators that decode quantized weights. It is not for concurrent use.
type Recognizer struct {
	Functions bool // also fold values in function bodies
	Rearrange bool // also fold Slice, Split, Concat and changes of shape of stored tensors

	Graph *graph.Graph
	known map[*graph.Value]*Constant // results so far; nil: not constant
	depth int
}

// Limits against hostile models. Real decoders are a handful of operators.
const (
	deepestFold = 64  // nodes in a chain
	mostSteps   = 256 // operators for one element
)

// Constant is a value that depends on constants alone.
type Constant struct {
	Values  *lazy.Tensor
	Source  *graph.Value // initializer or Constant that stores its codes or elements
	factor  *graph.Value // scalar factor, or nil
	stored  *lazy.Tensor // elements of Source, if Values are these, times step; else nil
	step    *lazy.Tensor // the factor, if it is stored as a float32; else nil
	blocked blocking     // how elements were repeated to make it
	Decoder *Decoder     // how it is decoded, or nil if it is not quantized
	steps   int          // operators that compute one element
}

// blocking says that blocks of elements along an axis share a scale.
type blocking struct{ Axis, Block int64 }

// Decoder says how a quantized weight is stored.
type Decoder struct {
	Form                            string       // the operators that decode it
	Codes, Scale, Zero, TensorScale *graph.Value // the stored parts; Zero and TensorScale, the scale of the scales, may be nil
	Mins, MinScale                  *graph.Value // mins, which are subtracted last, and their scale; may be nil
	CodeType                        dtype.DType
	blocking                        // Block 0: one scale for each index of the axis
	PerTensor                       bool
	Scales                          *lazy.Tensor // elements of Scale, if S are these, times Step; else nil
	Step                            *lazy.Tensor // element of TensorScale, if that is a float32; or nil
	unscaled                        bool         // no scale found yet: a Mul may follow
	Table                           []float32    // what the codes stand for, if a table says it; else nil

	// The value is (X - Z) · S, where ScaleMap maps elements of X to Z and S. Z may be
	// nil, and S while it is unscaled.
	X, Z, S  *lazy.Tensor
	ScaleMap lazy.ScaleMap

	// The stored codes and zero points of com.microsoft's operators, if uint8.
	Grid, ZeroGrid *lazy.Grid
	Middle         bool // no zero points are stored: they are 2^(bits-1)
	FloatZero      bool // zero points are floats

	Floats *lazy.Tensor // what a QuantizeLinear makes the codes of; nil if they are stored
}

// New returns a Recognizer for values outside of functions.
func New(x *graph.Graph) *Recognizer {
	return &Recognizer{Graph: x, known: map[*graph.Value]*Constant{}}
}

// input folds input i of a node. It returns nil if that is not constant.
func (f *Recognizer) input(n *onnxpb.NodeProto, i int) *Constant {
	if v := f.Graph.Source(n, i); v != nil {
		return f.Fold(v)
	}
	return nil
}

// Fold returns a value as a Constant, or nil if it is none.
func (f *Recognizer) Fold(v *graph.Value) *Constant {
	if c, ok := f.known[v]; ok {
		return c
	}
	if f.depth > deepestFold {
		return nil
	}
	f.known[v] = nil // while it is computed
	f.depth++
	c := f.find(v)
	f.depth--
	if c != nil && v.Node != nil {
		c.steps = 1
		for i := range v.Node.Input {
			if x := f.input(v.Node, i); x != nil {
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

// find folds a value that is not known yet.
func (f *Recognizer) find(v *graph.Value) *Constant {
	if v.Tensor != nil {
		dtype := dtype.DType(v.Tensor.GetDataType())
		p, err := f.Graph.File.Payload(v.Tensor)
		if err != nil || p == nil || v.Input && !v.MustBeInput || v.Body != nil && !f.Functions || !readable(dtype) {
			return nil
		}
		stored := lazy.Stored(dtype, v.Tensor.GetDims(), p)
		return &Constant{Values: stored, Source: v, stored: stored}
	}
	n := v.Node
	if f.Rearrange && n != nil && (Cuts(n) || Reshapes(n)) {
		if c := f.rearranged(v); c != nil {
			return c
		}
	}
	if n == nil || len(n.Output) != 1 {
		return nil
	}
	switch domain := n.GetDomain(); {
	case domain == graph.Contrib && n.GetOpType() == "DequantizeLinear":
		return f.dequantizeLinear(n)
	case !graph.IsStandard(domain):
		return nil
	}
	switch n.GetOpType() {
	case "Constant":
		return f.constantNode(n)
	case "Identity":
		return f.through(n, func(x *Constant) *lazy.Tensor {
			if x.Decoder != nil {
				return nil // no form has an Identity behind the decoder
			}
			return x.Values
		})
	case "Reshape":
		return f.through(n, func(x *Constant) *lazy.Tensor {
			shape, ok := f.newShape(n, x.Values.Shape)
			if !ok {
				return nil
			}
			return x.Values.Reshaped(shape)
		})
	case "Flatten", "Squeeze", "Unsqueeze":
		return f.through(n, func(x *Constant) *lazy.Tensor {
			shape, ok := f.newShape(n, x.Values.Shape)
			if !ok || x.Decoder != nil {
				return nil // no form has one behind the decoder
			}
			return x.Values.Reshaped(shape)
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

// readable reports whether elements of the type can be read as numbers.
func readable(t dtype.DType) bool {
	_, float8 := lazy.Float8Types[t]
	return lazy.IntegerType(t) || float8 || t.Float() || t == dtype.Float4E2M1 || t == dtype.Float8E8M0
}

// through folds a node that passes on its first input, changed by change. It does not fold
// past a decoded weight that other nodes read too.
func (f *Recognizer) through(n *onnxpb.NodeProto, change func(*Constant) *lazy.Tensor) *Constant {
	x := f.input(n, 0)
	if x == nil || x.Decoder != nil && !f.soleUse(n, 0) {
		return nil
	}
	made := change(x)
	if made == nil {
		return nil
	}
	return &Constant{Values: made, Source: x.Source, factor: x.factor, stored: x.stored, step: x.step, Decoder: x.Decoder}
}

// newShape returns the shape that a Reshape, Flatten, Squeeze or Unsqueeze gives to a constant.
func (f *Recognizer) newShape(n *onnxpb.NodeProto, old []int64) (shape []int64, ok bool) {
	if graph.Parameter(n, "allowzero", "axis", "axes") != "" {
		return nil, false
	}
	if n.GetOpType() == "Flatten" {
		axis := shapes.Axis(graph.IntAttributeOr(n, "axis", 1), len(old))
		if axis < 0 || axis > int64(len(old)) {
			return nil, false
		}
		return []int64{shapes.Count(old[:axis]), shapes.Count(old[axis:])}, true
	}
	list, ok := graph.Attribute(n, "axes").GetInts(), true
	if graph.HasInput(n, 1) {
		list, ok = f.integers(n, 1, shapes.MaxRank)
	}
	if !ok || len(list) > shapes.MaxRank {
		return nil, false
	}
	switch n.GetOpType() {
	case "Squeeze":
		return shapes.Squeeze(old, list)
	case "Unsqueeze":
		return shapes.Unsqueeze(old, list)
	case "Reshape":
		if graph.HasInput(n, 1) {
			return shapes.Reshape(list, old, graph.IntAttribute(n, "allowzero") != 0)
		}
	}
	return nil, false
}

// Transposed returns the matrix whose transpose a value is, where the value is a Reshape of a
// Transpose that moves the first axes of a constant behind the others; or nil.
func (f *Recognizer) Transposed(v *graph.Value) (*graph.Value, *Constant) {
	n := v.Node
	if n == nil || !graph.IsStandard(n.GetDomain()) || n.GetOpType() != "Reshape" && n.GetOpType() != "Flatten" {
		return nil, nil
	}
	moved := f.Graph.Source(n, 0)
	if moved == nil || moved.Node.GetOpType() != "Transpose" || !graph.IsStandard(moved.Node.GetDomain()) {
		return nil, nil
	}
	from := f.Graph.Source(moved.Node, 0)
	perm := graph.Attribute(moved.Node, "perm").GetInts()
	if from == nil || len(perm) == 0 {
		return nil, nil
	}
	x := f.Fold(from)
	if x == nil || x.Decoder != nil || len(perm) != len(x.Values.Shape) {
		return nil, nil
	}
	rank, first := int64(len(perm)), perm[0]
	var shape []int64
	for i, p := range perm {
		if p < 0 || p >= rank || p != (first+int64(i))%rank {
			return nil, nil
		}
		shape = append(shape, x.Values.Shape[p])
	}
	rows, columns := shapes.Count(x.Values.Shape[:first]), shapes.Count(x.Values.Shape[first:])
	if shape, ok := f.newShape(n, shape); !ok || !slices.Equal(shape, []int64{columns, rows}) {
		return nil, nil
	}
	matrix := *x
	matrix.Values = x.Values.Reshaped([]int64{rows, columns})
	return from, &matrix
}

// soleUse reports whether nothing else reads input i of a node.
func (f *Recognizer) soleUse(n *onnxpb.NodeProto, i int) bool {
	v := f.Graph.Source(n, i)
	return len(v.Uses) == 1 && !v.Output
}

// castNode folds a Cast that loses no integer.
func (f *Recognizer) castNode(n *onnxpb.NodeProto) *Constant {
	to := dtype.DType(graph.IntAttribute(n, "to"))
	exact := false
	c := f.through(n, func(x *Constant) *lazy.Tensor {
		if !readable(to) {
			return nil
		}
		from := x.Values.DType
		exact = from == to || from.Integer() && from.Bits() <= 8 || from.Bits() == 16 && to == dtype.Float32
		lo, hi := x.Values.DType.Limits()
		least, greatest := to.Limits()
		switch {
		case to.Float():
			return x.Values.Cast(to)
		case to.Integer() && x.Values.DType.Integer() && lo >= least && hi <= greatest:
			return x.Values.Cast(to)
		}
		return nil
	})
	if c != nil && !exact {
		c.stored, c.step = nil, nil
	}
	return c
}

// constantNode folds a Constant that holds a single number.
func (f *Recognizer) constantNode(n *onnxpb.NodeProto) *Constant {
	for _, a := range n.Attribute {
		switch a.GetName() {
		case "value_float":
			return &Constant{Values: lazy.Constant(a.GetF(), dtype.Float32)}
		case "value_int":
			if a.GetI() < -1<<24 || a.GetI() > 1<<24 {
				return nil // not exact in float32
			}
			return &Constant{Values: lazy.Constant(float32(a.GetI()), dtype.Int64)}
		}
	}
	return nil
}

// integers reads an input of at most most constant integers.
func (f *Recognizer) integers(n *onnxpb.NodeProto, input int, most int64) ([]int64, bool) {
	x := f.input(n, input)
	if x == nil || x.Values.Stored == nil || x.Values.Size() > most || x.Values.DType != dtype.Int64 && x.Values.DType != dtype.Int32 {
		return nil, false
	}
	return graph.ReadIntegers(x.Values.Stored, x.Values.DType, 0, x.Values.Size())
}

// dequantizeLinear folds a DequantizeLinear of ONNX or com.microsoft.
func (f *Recognizer) dequantizeLinear(n *onnxpb.NodeProto) *Constant {
	x, scale := f.input(n, 0), f.input(n, 1)
	var zero *Constant
	if graph.HasInput(n, 2) {
		if zero = f.input(n, 2); zero == nil {
			return nil
		}
	}
	if x == nil || scale == nil || !lazy.CodeType(x.Values.DType) || !scale.Values.DType.Float() && scale.Values.DType != dtype.Float8E8M0 {
		return nil
	}
	typ := scale.Values.DType
	if to := dtype.DType(graph.IntAttribute(n, "output_dtype")); to != 0 {
		typ = to
	}
	axis, block := graph.IntAttributeOr(n, "axis", 1), graph.IntAttribute(n, "block_size")
	s, ok := lazy.MapBlocks(x.Values.Shape, scale.Values.Shape, axis, block)
	if !ok || !typ.Float() || zero != nil && (zero.Values.Size() != scale.Values.Size() || zero.Values.DType != x.Values.DType) {
		return nil
	}
	d := &Decoder{
		Form: "DequantizeLinear", Codes: x.Source, Scale: scale.Source, TensorScale: scale.factor, Scales: scale.stored, Step: scale.step, CodeType: x.Values.DType,
		blocking: blocking{shapes.Axis(axis, len(x.Values.Shape)), block}, PerTensor: s.Single,
		X: x.Values, S: scale.Values, ScaleMap: s,
	}
	if x.Decoder != nil { // its codes come from QuantizeLinear
		d.Form, d.Floats = x.Decoder.Form+"+"+d.Form, x.Decoder.Floats
	}
	if scale.Decoder != nil {
		d.Scale, d.TensorScale, d.Scales, d.Step = scale.Decoder.Codes, scale.Decoder.Scale, nil, nil
	}
	if zero != nil {
		d.Z, d.Zero = zero.Values, zero.Source
	}
	return &Constant{Values: lazy.Dequantized(d.X, d.S, d.Z, s, typ), Source: x.Source, Decoder: d}
}

// quantizeLinear folds the first half of fake quantization: a QuantizeLinear of a float
// constant, whose codes a DequantizeLinear decodes.
func (f *Recognizer) quantizeLinear(n *onnxpb.NodeProto) *Constant {
	x, scale := f.input(n, 0), f.input(n, 1)
	if x == nil || scale == nil || x.Decoder != nil || !x.Values.DType.Float() || !scale.Values.DType.Float() {
		return nil
	}
	codes := dtype.Uint8
	if to := dtype.DType(graph.IntAttribute(n, "output_dtype")); to != 0 {
		codes = to
	}
	var z *lazy.Tensor
	if graph.HasInput(n, 2) {
		zero := f.input(n, 2)
		if zero == nil || zero.Values.Size() != scale.Values.Size() {
			return nil
		}
		z, codes = zero.Values, zero.Values.DType
	}
	saturate := graph.IntAttributeOr(n, "saturate", 1) != 0
	s, ok := lazy.MapBlocks(x.Values.Shape, scale.Values.Shape, graph.IntAttributeOr(n, "axis", 1), graph.IntAttribute(n, "block_size"))
	if !ok || !lazy.CodeType(codes) {
		return nil
	}
	made, ok := lazy.Quantized(x.Values, scale.Values, z, s, codes, saturate)
	if !ok {
		return nil
	}
	return &Constant{Values: made, Source: x.Source, Decoder: &Decoder{Form: "QuantizeLinear", Floats: x.Values}}
}

// gather folds a lookup: of a table's values by codes, or of the scale of each element's
// block.
func (f *Recognizer) gather(n *onnxpb.NodeProto) *Constant {
	data, index := f.input(n, 0), f.input(n, 1)
	if data == nil || index == nil || !data.Values.DType.Float() || data.Decoder != nil && !f.subtracted(n) || index.Decoder != nil {
		return nil
	}
	axis := shapes.Axis(graph.IntAttributeOr(n, "axis", 0), len(data.Values.Shape))
	if index.Source != nil && lazy.CodeType(dtype.DType(index.Source.Tensor.GetDataType())) && len(data.Values.Shape) == 1 && data.Values.Size() <= maxTable {
		if bits := dtype.DType(index.Source.Tensor.GetDataType()).Bits(); bits <= 8 {
			return f.tableLookup(data, index)
		}
	}
	if len(index.Values.Shape) != 1 || index.Values.Stored == nil || axis < 0 || axis >= int64(len(data.Values.Shape)) {
		return nil
	}
	block, ok := blocksOf(index, data.Values.Shape[axis])
	if !ok {
		return nil
	}
	shape := slices.Clone(data.Values.Shape)
	shape[axis] = index.Values.Size()
	s, ok := lazy.MapBlocks(shape, data.Values.Shape, axis, block)
	if !ok {
		return nil
	}
	return &Constant{Values: data.Values.Spread(s, shape), Source: data.Source, factor: data.factor, blocked: blocking{axis, block}, Decoder: data.Decoder}
}

// subtracted reports whether the value of a node is only subtracted from others, as mins are.
func (f *Recognizer) subtracted(n *onnxpb.NodeProto) bool {
	v := f.Graph.Made(n)
	return v != nil && !v.Output && len(v.Uses) > 0 && !slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
		return u.Node.GetOpType() != "Sub" || u.Input != 1
	})
}

// maxTable is the largest table: codes have at most 8 bits.
const maxTable = 256

// tableLookup folds a lookup of a table's values by codes.
func (f *Recognizer) tableLookup(data, index *Constant) *Constant {
	table := make([]float32, data.Values.Size())
	if err := data.Values.Read(&lazy.Arena{}, table, 0); err != nil {
		return nil
	}
	values := lazy.LookedUp(table, index.Values, data.Values.DType)
	d := &Decoder{Form: "Gather", Codes: index.Source, CodeType: dtype.DType(index.Source.Tensor.GetDataType()), PerTensor: true, unscaled: true, X: values, Table: table}
	return &Constant{Values: values, Source: index.Source, Decoder: d}
}

// blocksOf returns the block size of indices 0, …, 0, 1, …, 1, 2, …: how often each but
// the last occurs. It is not ok if they are not of this kind.
func blocksOf(index *Constant, count int64) (block int64, ok bool) {
	n := index.Values.Size()
	if count == 0 || n == 0 || index.Values.DType != dtype.Int64 && index.Values.DType != dtype.Int32 {
		return 0, false
	}
	for off := int64(0); off < n; {
		list, ok := graph.ReadIntegers(index.Values.Stored, index.Values.DType, off, min(n-off, lazy.MaxRead))
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
	return block, shapes.DivideUp(n, block) == count
}

// product folds a Mul of a table's values with scales, or of two constants that are not
// decoded weights, such as scales and their scale.
func (f *Recognizer) product(n *onnxpb.NodeProto) *Constant {
	x, y := f.input(n, 0), f.input(n, 1)
	if x == nil || y == nil || x.Values.DType != y.Values.DType || !x.Values.DType.Float() {
		return nil
	}
	if y.Decoder != nil || len(y.Values.Shape) > len(x.Values.Shape) || len(y.Values.Shape) == len(x.Values.Shape) && y.Values.Size() > x.Values.Size() {
		x, y = y, x
	}
	s, ok := lazy.MapBroadcast(x.Values.Shape, y.Values.Shape)
	if !ok || y.Decoder != nil || x.Decoder != nil && !x.Decoder.unscaled {
		return nil
	}
	made := lazy.Dequantized(x.Values, y.Values, nil, s, x.Values.DType)
	if x.Decoder == nil {
		c := &Constant{Values: made, Source: x.Source, blocked: x.blocked}
		if s.Single {
			if c.factor = y.Source; x.factor == nil && y.stored == y.Values && x.Values.DType == dtype.Float32 {
				c.stored, c.step = x.stored, y.stored
			}
		}
		return c
	}
	d := *x.Decoder
	d.Form, d.unscaled = "Gather+Mul", false
	d.Scale, d.TensorScale, d.S, d.ScaleMap = y.Source, y.factor, y.Values, s
	d.blocking, d.PerTensor = y.blocked, s.Single
	if !s.Single && d.Block == 0 { // a block is the axis that Mul broadcasts
		for i, n := range x.Values.Shape {
			if from := len(y.Values.Shape) - len(x.Values.Shape) + i; from < 0 || y.Values.Shape[from] != n {
				d.blocking = blocking{int64(i), n}
			}
		}
	}
	return &Constant{Values: made, Source: x.Source, Decoder: &d}
}

// difference folds a Sub that subtracts mins from a decoded weight.
func (f *Recognizer) difference(n *onnxpb.NodeProto) *Constant {
	x, y := f.input(n, 0), f.input(n, 1)
	if x == nil || y == nil || x.Decoder == nil || x.Decoder.unscaled || x.Decoder.Mins != nil || x.Values.DType != y.Values.DType {
		return nil
	}
	s, ok := lazy.MapBroadcast(x.Values.Shape, y.Values.Shape)
	if !ok {
		return nil
	}
	d := *x.Decoder
	d.Form += "+Sub"
	d.Mins, d.MinScale = y.Source, y.factor
	if y.Decoder != nil {
		d.MinScale = y.Decoder.Scale
	}
	return &Constant{Values: x.Values.Minus(y.Values, s), Source: x.Source, Decoder: &d}
}
