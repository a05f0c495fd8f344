package half

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/optypes"
	"onnxquant/spec"
)

// floatInputs are inputs that stay in float32 though the operator's types allow half.
var floatInputs = map[string][]int{
	"Resize":                  {1},
	"com.microsoft.GroupNorm": {1, 2},
}

// choice decides which nodes and values stay in float32.
type choice struct {
	*typing
	opts    Options
	kept    map[int]string          // number of a node that stays in float32 → why
	later   map[int]int64           // of these, the number of one that need not → from which opset on
	float32 []string                // operators that stay in float32
	far     map[*graph.Value]string // values that half cannot represent → why
	large   map[*graph.Value]string // computed values that may be beyond half → why

	// decided, if set, decides for the nodes that it knows (see Like).
	decided func(n *onnxpb.NodeProto) (stays, known bool)
	// otherHalf, if set, reports whether a flexible node makes half, if it knows the node (see Like).
	otherHalf func(n *onnxpb.NodeProto) (half, known bool)
}

// choose decides for every node.
func choose(c *choice) *choice {
	float := map[*graph.Function]bool{} // functions whose bodies stay in float32
	c.float32 = append(spec.FloatOps(), c.opts.FloatOps...)
	for {
		c.kept, c.later = map[int]string{}, map[int]int64{}
		c.nodes(c.x.File.Proto.Graph.Node, "", float)
		for _, f := range c.functions() {
			why := ""
			if float[f] {
				why = "is in a function that is called with float32"
			}
			c.nodes(f.Proto.Node, why, float)
		}
		if c.opts.To == dtype.Float16 && c.decided == nil {
			c.keepSquares()
		}
		if c.decided == nil {
			c.keepSums()
			c.keepCodes()
		}
		if c.opts.KeepCrashingTranspose && c.decided == nil {
			c.keepCrashingTranspose()
		}
		more := false
		for _, f := range c.functions() {
			called := c.called[f]
			stays := called == nil || called.torn || slices.ContainsFunc(f.Calls, func(n *onnxpb.NodeProto) bool { return c.staysFloat(n) })
			if stays && !float[f] {
				float[f], more = true, true
			}
		}
		if !more {
			return c
		}
	}
}

// functions lists the functions that are called.
func (c *choice) functions() []*graph.Function {
	var list []*graph.Function
	graph.WalkNodes(c.x.File.Proto, func(n *onnxpb.NodeProto) {
		if f := c.x.Called(n); f != nil && !slices.Contains(list, f) {
			list = append(list, f)
		}
	})
	return list
}

// staysFloat reports whether a node stays in float32.
func (c *choice) staysFloat(n *onnxpb.NodeProto) bool { return c.kept[c.x.Number(n)] != "" }

// nodes decides for nodes and the nodes of their subgraphs. A reason why, if not empty, keeps all in
// float32.
func (c *choice) nodes(nodes []*onnxpb.NodeProto, why string, float map[*graph.Function]bool) {
	for _, n := range ordered(nodes) {
		reason := why
		if f := c.x.Called(n); reason == "" && float[f] && f != nil {
			reason = "calls a function that stays in float32"
		}
		if reason == "" {
			reason = c.reason(n)
		}
		inner := why
		if reason != "" {
			c.kept[c.x.Number(n)] = reason
			inner = fmt.Sprintf("is in %s, which stays in float32", graph.Describe(n))
			if passes[n.GetOpType()] {
				c.passFar(n)
			}
		}
		for _, a := range n.Attribute {
			for _, g := range graph.Subgraphs(a) {
				c.nodes(g.Node, inner, float)
			}
		}
	}
}

// reason returns why a node stays in float32, "" if it does not.
func (c *choice) reason(n *onnxpb.NodeProto) string {
	if c.decided != nil {
		switch stays, known := c.decided(n); {
		case stays:
			return "stays in float32 in the other model"
		case known:
			return ""
		}
	}
	op := graph.Operator(n)
	label := graph.Label(n)
	switch {
	case c.opts.Excluded != nil && c.opts.Excluded(label):
		return "is excluded"
	case slices.Contains(c.float32, op):
		return "computes in float32"
	case n.GetDomain() == "ai.onnx.ml":
		return "computes in float32, as all of ai.onnx.ml"
	case scattersInto(n):
		return "has no kernel with a reduction of half in ONNX Runtime"
	}
	for i, v := range c.x.Inputs(n) {
		if v == nil {
			continue
		}
		if c.opts.Excluded != nil && v.Tensor != nil && c.opts.Excluded(v.Name) && c.types[v].float() {
			return "reads " + msg.Quote(v.Path) + ", which is excluded"
		}
		if why := c.far[v]; why != "" && c.wants(n, i) == half {
			return "reads " + msg.Quote(v.Path) + ", which " + why
		}
		if why := c.large[v]; why != "" && c.wants(n, i) == half {
			return why
		}
	}
	for _, v := range c.x.Outputs(n) {
		if why := c.large[v]; why != "" {
			return why
		}
	}
	if carries(n) || c.x.Called(n) != nil {
		return c.sequences(n)
	}
	return c.typed(n)
}

// carries reports whether a node hands values to its subgraphs and back, whatever their type.
func carries(n *onnxpb.NodeProto) bool {
	if !graph.IsStandard(n.GetDomain()) {
		return false
	}
	switch n.GetOpType() {
	case "If", "Loop", "Scan":
		return true
	}
	return false
}

// sequences says that a node reads or makes sequences of floats, which no Cast converts.
func (c *choice) sequences(n *onnxpb.NodeProto) string {
	for _, v := range slices.Concat(c.x.Inputs(n), c.x.Outputs(n)) {
		if e := c.types[v]; v != nil && e.sequence && e.dtype != optypes.Other {
			return "reads or makes a sequence"
		}
	}
	return ""
}

// typed checks the types of an operator's floats.
func (c *choice) typed(n *onnxpb.NodeProto) string {
	s := c.signature(n)
	if s == nil {
		for _, v := range slices.Concat(c.x.Inputs(n), c.x.Outputs(n)) {
			if e := c.types[v]; v != nil && e.dtype != optypes.Other {
				return "takes types that are not known"
			}
		}
		return ""
	}
	if why := c.sequences(n); why != "" {
		return why
	}
	if n.GetOpType() == "BitCast" || n.GetOpType() == "SequenceMap" {
		return "computes with bits or sequences of float32"
	}
	if n.GetOpType() == "DequantizeLinear" || n.GetOpType() == "QuantizeLinear" {
		if why := c.coding(n); why != "" {
			return why
		}
	}
	check := func(v *graph.Value, i int, at parameter) string {
		e := c.types[v]
		p, ok := at(s, i)
		switch allowed := s.Allows(p); {
		case v == nil || e.dtype == optypes.Other:
			return ""
		case e.dtype == 0 && (allowed.Float32 || allowed.Float16):
			return "reads or makes " + msg.Quote(v.Path) + ", whose type is not known"
		case !ok:
			return "has more inputs or outputs than its operator"
		case e.float() && p.Variable != "" && !allowed.Has(c.opts.To) && !(allowed.Float32 && !allowed.Float16 && !c.bound(s, p)):
			why := "does not take " + typeName(c.opts.To)
			if opset := c.takenFrom(n, s.Since, i, at); opset > 0 {
				c.later[c.x.Number(n)] = opset
				why += fmt.Sprintf(" before opset %d", opset)
			}
			return why
		}
		return ""
	}
	for i, v := range c.x.Inputs(n) {
		if why := check(v, i, (*optypes.Signature).Input); why != "" {
			return why
		}
	}
	for i, v := range c.x.Outputs(n) {
		if why := check(v, i, (*optypes.Signature).Output); why != "" {
			return why
		}
	}
	return ""
}

// parameter returns an input or output of a signature by its position.
type parameter func(s *optypes.Signature, i int) (optypes.Param, bool)

// takenFrom returns the opset after since from which on an operator takes half, or 0.
func (c *choice) takenFrom(n *onnxpb.NodeProto, since int64, i int, at parameter) int64 {
	if !graph.IsStandard(n.GetDomain()) {
		return 0
	}
	for _, s := range optypes.All("", n.GetOpType()) {
		if p, ok := at(s, i); s.Since > since && ok && s.Allows(p).Has(c.opts.To) {
			return s.Since
		}
	}
	return 0
}

// bound reports whether an input has the variable of a parameter.
func (c *choice) bound(s *optypes.Signature, p optypes.Param) bool {
	return slices.ContainsFunc(s.Inputs, func(q optypes.Param) bool { return q.Variable == p.Variable })
}

// coding says why a QuantizeLinear or DequantizeLinear stays in float32, as far as tensors, declarations and
// attributes tell the type of its codes.
func (c *choice) coding(n *onnxpb.NodeProto) string {
	for _, t := range codeTypes(c.x, n) {
		switch t {
		case dtype.Int16, dtype.Uint16, dtype.Int32:
			return "has codes of " + t.String() + ", which are finer than " + typeName(c.opts.To)
		case dtype.Float8E5M2:
			if c.opts.To == dtype.Float16 && n.GetOpType() == "DequantizeLinear" {
				return "decodes FLOAT8E5M2, whose values with a scale may be beyond float16"
			}
		}
	}
	return ""
}

// codeTypes lists what is known of the type of the codes that a node makes or decodes.
func codeTypes(x *graph.Graph, n *onnxpb.NodeProto) []dtype.DType {
	types := []dtype.DType{elementType(x.Source(n, 2))}
	if n.GetOpType() == "QuantizeLinear" {
		return append(types, dtype.DType(graph.IntAttribute(n, "output_dtype")), elementType(x.Made(n)))
	}
	v := x.Source(n, 0)
	types = append(types, elementType(v))
	if v != nil && v.Node != nil && graph.IsOperator(v.Node, "QuantizeLinear") {
		types = append(types, codeTypes(x, v.Node)...)
	}
	return types
}

// elementType is the type of the elements of a value; 0 if the value is nil, or no tensor or declaration has it.
func elementType(v *graph.Value) dtype.DType {
	if v == nil {
		return 0
	}
	return v.ElemType()
}

// scattersInto reports whether a ScatterND or ScatterElements adds or multiplies what it scatters.
func scattersInto(n *onnxpb.NodeProto) bool {
	how := string(graph.Attribute(n, "reduction").GetS())
	return (graph.IsOperator(n, "ScatterND") || graph.IsOperator(n, "ScatterElements")) && how != "" && how != "none"
}

// wish is the type that an input wants.
type wish int

const (
	any32 wish = iota // any floating point type
	float
	half
)

// wants returns the type that a float input of a node wants.
func (c *choice) wants(n *onnxpb.NodeProto, input int) wish {
	if c.staysFloat(n) {
		return float
	}
	if carries(n) || c.x.Called(n) != nil {
		return half
	}
	s := c.signature(n)
	if s == nil {
		return float
	}
	p, ok := s.Input(input)
	switch {
	case !ok || p.Variable == "" || slices.Contains(floatInputs[graph.Operator(n)], input):
		return float
	case graph.IsOperator(n, "Cast"):
		return any32
	case c.indifferent(n, s, p):
		return any32
	}
	return half
}

// indifferent reports whether an input may have either type: the node makes no floats, and no other
// input shares the type variable.
func (c *choice) indifferent(n *onnxpb.NodeProto, s *optypes.Signature, p optypes.Param) bool {
	for _, v := range c.x.Outputs(n) {
		if v != nil && c.types[v].dtype != optypes.Other {
			return false
		}
	}
	switch n.GetOpType() {
	case "QuantizeLinear":
		return false
	}
	with := 0
	for i := range n.Input {
		if q, ok := s.Input(i); ok && q.Variable == p.Variable {
			with++
		}
	}
	return with == 1
}

// passes lists operators that hand on values that half cannot represent.
var passes = map[string]bool{
	"Add": true, "Concat": true, "Expand": true, "Flatten": true, "Gather": true, "Identity": true, "Mul": true,
	"Neg": true, "Pad": true, "Reshape": true, "Slice": true, "Split": true, "Squeeze": true, "Sub": true,
	"Tile": true, "Transpose": true, "Unsqueeze": true, "Where": true,
}

// passFar marks the outputs of a node that reads values that half cannot represent.
func (c *choice) passFar(n *onnxpb.NodeProto) {
	for _, v := range c.x.Inputs(n) {
		if v == nil || c.far[v] == "" {
			continue
		}
		for _, made := range c.x.Outputs(n) {
			if made != nil && c.types[made].float() {
				c.far[made] = "may hold values beyond " + typeName(c.opts.To)
			}
		}
		return
	}
}

func (c *choice) keep(n *onnxpb.NodeProto, why string) {
	if !c.staysFloat(n) {
		c.kept[c.x.Number(n)] = why
	}
}
