package restyle

import (
	"slices"

	"onnxquant/internal/form"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/recognize"
	"onnxquant/internal/write"
	"onnxquant/spec"
)

// unfold replaces a weight by a float tensor.
func (r *rebuild) unfold(w *recognize.Weight) Weight {
	if w.Value != nil && w.Value.Body != nil {
		return r.unfoldInFunction(w)
	}
	b := r.builder(w)
	r.replaced = append(r.replaced, w)
	rows, cols, shape := int64(1), w.Constant.Values.Size(), w.Constant.Values.Shape
	if w.Transposed {
		rows, cols, shape = shape[0], shape[1], []int64{shape[1], shape[0]}
	}
	var t *onnxpb.TensorProto
	if w.Value != nil {
		r.copy.Drop(w.Nodes[0])
		t = &onnxpb.TensorProto{Name: new(w.Value.Name), DataType: new(int32(w.Constant.Values.DType)), Dims: slices.Clone(shape)}
		write.Reserve(t)
		b.Tensors = append(b.Tensors, t)
	} else {
		t = b.Tensor(w.PlainName(), w.Constant.Values.DType, shape)
		r.readValue(w, b, t.GetName(), w.Transposed)
	}
	r.fillFloats(t, w.Constant.Values, rows, cols, w.Transposed)
	return Weight{Weight: w, Became: t.GetName(), NewForm: string(spec.Float), OutBytes: graph.SizeOf(t), Changed: true}
}

// readValue replaces the operators that decode a weight internally by ordinary ones, which
// read the decoded weight. name is that value: as stored, or with transposed its transpose.
func (r *rebuild) readValue(w *recognize.Weight, b *form.Builder, name string, transposed bool) {
	right := name // second input of a MatMul
	if !transposed && slices.ContainsFunc(w.Nodes, multiplies) {
		right = b.Value(name, "Transpose", []string{name}, intsAttr("perm", 1, 0))
	}
	for i, n := range w.Nodes {
		made := r.copy.Node(n)
		if w.Ends != nil { // the weight has its mins now
			made.Output = r.copy.Node(w.Ends[i]).Output
			r.copy.Drop(w.Ends[i])
		}
		if recognize.IsQMoE(n) {
			form.ReadExperts(n, made, w.Inputs[i], name)
			continue
		}
		if n.GetOpType() == "GatherBlockQuantized" {
			become(made, "Gather", []string{name, n.Input[1]}, form.IntAttr("axis", graph.IntAttribute(n, "gather_axis")))
			continue
		}
		var bias string
		if graph.HasInput(n, 5) {
			bias = n.Input[5]
			output := made.Output[0]
			made.Output = []string{b.Fresh(w.PlainName() + "_MatMul_Output")}
			r.copy.AddBehind(made, b.NewNode(w.PlainName(), "Add", output, []string{made.Output[0], bias}))
		}
		become(made, "MatMul", []string{n.Input[0], right})
	}
	r.importStandard()
}

// multiplies reports whether a node that decodes a weight internally multiplies by the transpose of its matrix.
func multiplies(n *onnxpb.NodeProto) bool {
	return n.GetOpType() != "GatherBlockQuantized" && !recognize.IsQMoE(n)
}

// become turns a node into an operator of ONNX.
func become(n *onnxpb.NodeProto, op string, inputs []string, attrs ...*onnxpb.AttributeProto) {
	n.OpType, n.Domain, n.Overload = &op, nil, nil
	n.Input, n.Attribute = inputs, attrs
}

// importStandard imports ONNX's operators if the model does not.
func (r *rebuild) importStandard() {
	for _, o := range r.copy.Proto.OpsetImport {
		if graph.IsStandard(o.GetDomain()) {
			return
		}
	}
	r.copy.Proto.OpsetImport = append(r.copy.Proto.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: new(""), Version: new(int64(13))})
}

func intsAttr(name string, v ...int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INTS.Enum(), Ints: v}
}

// unfoldInFunction replaces the node that decodes a weight in a function by a float
// Constant: functions have no initializers.
func (r *rebuild) unfoldInFunction(w *recognize.Weight) Weight {
	t := &onnxpb.TensorProto{Name: new(w.Value.Name), DataType: new(int32(w.Constant.Values.DType)), Dims: slices.Clone(w.Constant.Values.Shape)}
	write.Reserve(t)
	r.fillFloats(t, w.Constant.Values, 1, w.Constant.Values.Size(), false)
	become(r.copy.Node(w.Nodes[0]), "Constant", nil,
		&onnxpb.AttributeProto{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: t})
	r.unfolded[w.Value.Body.Index] = true
	return Weight{Weight: w, Became: w.Value.Path, NewForm: string(spec.Float), OutBytes: graph.SizeOf(t), Changed: true}
}

// sweepFunctions removes nodes and initializers that nothing reads any more from functions
// whose weights were unfolded.
func (r *rebuild) sweepFunctions() {
	for i, f := range r.copy.Original.File.Proto.Functions {
		if r.unfolded[i] {
			idle := map[string]bool{} // not read in the input either
			was := readInside(f)
			eachBody(f, func(nodes []*onnxpb.NodeProto, g *onnxpb.GraphProto) {
				for _, name := range namesMade(nodes, g) {
					idle[name] = !was[name]
				}
			})
			sweepFunction(r.copy.Proto.Functions[i], idle)
		}
	}
}

// sweepFunction removes unread nodes and initializers of a function, except idle ones, which were
// unread in the input too.
func sweepFunction(f *onnxpb.FunctionProto, idle map[string]bool) {
	for again := true; again; {
		again = false
		read := readInside(f)
		unread := func(name string) bool { return !read[name] && !idle[name] }
		dead := func(n *onnxpb.NodeProto) bool {
			gone := len(n.Output) > 0 && !slices.ContainsFunc(n.Output, func(name string) bool { return !unread(name) })
			again = again || gone
			return gone
		}
		f.Node = slices.DeleteFunc(f.Node, dead)
		graph.WalkSubgraphs(f.Node, func(g *onnxpb.GraphProto) {
			g.Node = slices.DeleteFunc(g.Node, dead)
			g.Initializer = slices.DeleteFunc(g.Initializer, func(t *onnxpb.TensorProto) bool { return unread(t.GetName()) })
		})
	}
}

// readInside is the set of names that a function or its subgraphs read or return.
func readInside(f *onnxpb.FunctionProto) map[string]bool {
	read := map[string]bool{}
	note := func(names []string) {
		for _, name := range names {
			read[name] = true
		}
	}
	note(f.Output)
	eachBody(f, func(nodes []*onnxpb.NodeProto, g *onnxpb.GraphProto) {
		for _, n := range nodes {
			note(n.Input)
		}
		for _, o := range g.GetOutput() {
			read[o.GetName()] = true
		}
	})
	return read
}

// eachBody visits the nodes of a function (with g nil) and of its subgraphs.
func eachBody(f *onnxpb.FunctionProto, visit func(nodes []*onnxpb.NodeProto, g *onnxpb.GraphProto)) {
	visit(f.Node, nil)
	graph.WalkSubgraphs(f.Node, func(g *onnxpb.GraphProto) { visit(g.Node, g) })
}

// namesMade lists the outputs of nodes and the initializers of their graph.
func namesMade(nodes []*onnxpb.NodeProto, g *onnxpb.GraphProto) (names []string) {
	for _, n := range nodes {
		names = append(names, n.Output...)
	}
	for _, t := range g.GetInitializer() {
		names = append(names, t.GetName())
	}
	return names
}
