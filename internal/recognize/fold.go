package recognize

import (
	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/onnxpb"
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
	stored  *lazy.Tensor // elements of Source, if Values are stored times step; else nil
	step    *lazy.Tensor // the factor, if it is stored as a float32; else nil
	blocked blocking     // how elements were repeated to make it
	Decoder *Decoder     // how it is decoded, or nil if it is not quantized
	cast    *castCodes   // it is codes as floats, whose scales may follow; or nil
	loose   bool         // Decoder is doubtful: it may be scales with a scale
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
	Scales                          *lazy.Tensor // elements of Scale, if S is Scales times Step; else nil
	Step                            *lazy.Tensor // element of TensorScale, if it is a float32; else nil
	unscaled                        bool         // no scale found yet: a Mul may follow
	Table                           []float32    // the values of the codes if they are in a table; else nil

	// The value is (X - Z) · S, where ScaleMap maps elements of X to Z and S. Z may be
	// nil, and S while it is unscaled.
	X, Z, S  *lazy.Tensor
	ScaleMap lazy.ScaleMap

	// The stored codes and zero points of com.microsoft's operators, if uint8.
	Grid, ZeroGrid *lazy.Grid
	Middle         bool // no zero points are stored: they are 2^(bits-1)
	FloatZero      bool // zero points are floats

	Floats *lazy.Tensor // input of the QuantizeLinear that makes the codes; nil if the codes are stored
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
	if v.Tensor == nil && !f.mayFold(v.Node) {
		return nil // not remembered: most values of most models are such
	}
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
			if x := f.cutInput(v.Node, i); x != nil {
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

// mayFold reports whether the output of a node may be folded, judging by its operator alone.
func (f *Recognizer) mayFold(n *onnxpb.NodeProto) bool {
	return n != nil && (foldOf(n) != nil || f.Rearrange && (Cuts(n) || Reshapes(n)))
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
	if f.Rearrange && (Cuts(n) || Reshapes(n)) {
		if c := f.rearranged(v); c != nil {
			return c
		}
	}
	if fold := foldOf(n); fold != nil && len(n.Output) == 1 {
		return fold(f, n)
	}
	return nil
}

// foldOf returns what folds nodes of an operator, or nil.
func foldOf(n *onnxpb.NodeProto) func(*Recognizer, *onnxpb.NodeProto) *Constant {
	if n.GetDomain() == graph.Contrib && n.GetOpType() == "DequantizeLinear" {
		return (*Recognizer).dequantizeLinear
	}
	if !graph.IsStandard(n.GetDomain()) {
		return nil
	}
	switch n.GetOpType() {
	case "Constant":
		return (*Recognizer).constantNode
	case "Identity":
		return (*Recognizer).identity
	case "Reshape":
		return (*Recognizer).reshape
	case "Flatten", "Squeeze", "Unsqueeze":
		return (*Recognizer).view
	case "Cast":
		return (*Recognizer).castNode
	case "DequantizeLinear":
		return (*Recognizer).dequantizeLinear
	case "QuantizeLinear":
		return (*Recognizer).quantizeLinear
	case "Gather":
		return (*Recognizer).gather
	case "Mul":
		return (*Recognizer).product
	case "Sub":
		return (*Recognizer).difference
	}
	return nil
}

func (f *Recognizer) identity(n *onnxpb.NodeProto) *Constant {
	return f.foldThrough(n, func(x *Constant) *lazy.Tensor {
		if x.Decoder != nil {
			return nil // no form has an Identity behind the decoder
		}
		return x.Values
	})
}

func (f *Recognizer) reshape(n *onnxpb.NodeProto) *Constant {
	return f.foldThrough(n, func(x *Constant) *lazy.Tensor {
		shape, ok := f.newShape(n, x.Values.Shape)
		if !ok {
			return nil
		}
		return x.Values.Reshaped(shape)
	})
}

// view folds a Flatten, Squeeze or Unsqueeze.
func (f *Recognizer) view(n *onnxpb.NodeProto) *Constant {
	return f.foldThrough(n, func(x *Constant) *lazy.Tensor {
		shape, ok := f.newShape(n, x.Values.Shape)
		if !ok || x.Decoder != nil {
			return nil // no known form has a zero point behind the decoder
		}
		return x.Values.Reshaped(shape)
	})
}

// readable reports whether elements of the type can be read as numbers.
func readable(t dtype.DType) bool {
	_, float8 := lazy.Float8Types[t]
	return lazy.IntegerType(t) || float8 || t.Float() || t == dtype.Float4E2M1 || t == dtype.Float8E8M0
}

// foldThrough folds a node that hands on its first input, changed by change. It does not fold a decoded
// weight that other nodes read too.
func (f *Recognizer) foldThrough(n *onnxpb.NodeProto, change func(*Constant) *lazy.Tensor) *Constant {
	x := f.input(n, 0)
	if x != nil && !f.soleUse(n, 0) {
		x = x.plain()
	}
	if x == nil || x.Decoder != nil && !f.soleUse(n, 0) {
		return nil
	}
	made := change(x)
	if made == nil {
		return nil
	}
	return &Constant{Values: made, Source: x.Source, factor: x.factor, stored: x.stored, step: x.step, Decoder: x.Decoder, loose: x.loose}
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
	var cast *castCodes
	c := f.foldThrough(n, func(x *Constant) *lazy.Tensor {
		if !readable(to) {
			return nil
		}
		cast = x.castCodes(to)
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
	if c != nil {
		c.cast = cast
	}
	return c
}

// constantNode folds a Constant that holds a single number.
func (f *Recognizer) constantNode(n *onnxpb.NodeProto) *Constant {
	for _, a := range n.Attribute {
		if a.GetRefAttrName() != "" {
			return nil // its value is known at a call
		}
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
