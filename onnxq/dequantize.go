package onnxq

import (
	"context"
	"fmt"
	"slices"
	"time"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq/recognize"
	"onnxquant/onnxq/spec"
)

// Dequantize writes the model at in to out with every quantized weight folded
// back into a float tensor, which holds exactly what the form stands for. A
// MatMulNBits becomes a MatMul, with an Add for its bias, a GatherBlockQuantized
// a Gather. The input is never written to, and out appears whole or not at all.
func Dequantize(ctx context.Context, in, out string, opts RewriteOptions) (*RewriteReport, error) {
	return rewriteWeights(ctx, in, out, opts, func(r *rebuild, w *recognize.Weight) (RewrittenWeight, int64) {
		return r.unfold(w), 0
	})
}

// rewriteWeights writes a model with its weights replaced. The replacement also
// tells the least opset that it needs.
func rewriteWeights(ctx context.Context, in, out string, opts RewriteOptions, replace func(*rebuild, *recognize.Weight) (RewrittenWeight, int64)) (*RewriteReport, error) {
	start := time.Now()
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := Open(in)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	f := recognize.New(m.index)
	r := m.newRebuild(opts)
	list := []RewrittenWeight{}
	need := int64(0)
	for _, w := range f.Weights() {
		made := RewrittenWeight{Weight: w, NewForm: w.Form, OutBytes: w.Bytes, Reason: w.Obstacle}
		if w.Obstacle == "" {
			var opset int64
			made, opset = replace(r, w)
			need = max(need, opset)
		}
		list = append(list, made)
	}
	if err := r.finish(need); err != nil {
		return nil, fmt.Errorf("%s: %w", in, err)
	}
	for i := range list {
		if name, ok := r.renamed[list[i].Became]; ok {
			list[i].Became = name
		}
	}
	report, err := r.write(ctx, out)
	if err != nil {
		return nil, err
	}
	report.Weights, report.Elapsed = list, time.Since(start)
	return report, nil
}

// unfold makes a weight a float tensor.
func (r *rebuild) unfold(w *recognize.Weight) RewrittenWeight {
	if w.Value != nil && w.Value.Body != nil {
		return r.unfoldInFunction(w)
	}
	b := r.builder(w)
	r.replaced = append(r.replaced, w)
	rows, cols, shape := int64(1), w.Folded.Num.Size(), w.Folded.Num.Shape
	if w.Transposed {
		rows, cols, shape = shape[0], shape[1], []int64{shape[1], shape[0]}
	}
	var t *onnxpb.TensorProto
	if w.Value != nil {
		r.consumers.gone[r.consumers.copies[w.Nodes[0]]] = true
		t = &onnxpb.TensorProto{Name: new(w.Value.Name), DataType: new(int32(w.Folded.Num.DType)), Dims: slices.Clone(shape)}
		b.tensors = append(b.tensors, t)
		r.made[t] = true
	} else {
		t = r.tensor(b, w.PlainName(), w.Folded.Num.DType, shape)
		r.readValue(w, b, t.GetName(), w.Transposed)
	}
	r.fillFloats(t, w.Folded.Num, rows, cols, w.Transposed)
	return RewrittenWeight{Weight: w, Became: t.GetName(), NewForm: string(spec.Float), OutBytes: graph.SizeOf(t), Changed: true}
}

// readValue makes the operators that decode a weight for themselves read a value
// that is decoded: the weight, or its transpose if it is turned.
func (r *rebuild) readValue(w *recognize.Weight, b *builder, name string, turned bool) {
	right := name // of a product
	if !turned && slices.ContainsFunc(w.Nodes, func(n *onnxpb.NodeProto) bool { return n.GetOpType() == "MatMulNBits" }) {
		right = b.value(name, "Transpose", []string{name}, intsAttr("perm", 1, 0))
	}
	for _, n := range w.Nodes {
		made := r.consumers.copies[n]
		if n.GetOpType() == "GatherBlockQuantized" {
			become(made, b.domain, "Gather", []string{name, n.Input[1]}, intAttr("axis", graph.IntAttribute(n, "gather_axis")))
			continue
		}
		var bias string
		if graph.HasInput(n, 5) {
			bias = n.Input[5]
			output := made.Output[0]
			made.Output = []string{b.fresh(w.PlainName() + "_MatMul_Output")}
			r.consumers.behind[made] = append(r.consumers.behind[made], b.loose(w.PlainName(), "Add", output, []string{made.Output[0], bias}))
		}
		become(made, b.domain, "MatMul", []string{n.Input[0], right})
	}
	r.importStandard()
}

// become makes a node an operator of the standard.
func become(n *onnxpb.NodeProto, domain, op string, inputs []string, attrs ...*onnxpb.AttributeProto) {
	n.OpType, n.Domain, n.Overload = &op, nil, nil
	if domain != "" {
		n.Domain = &domain
	}
	n.Input, n.Attribute = inputs, attrs
}

// importStandard imports the operators of the standard where a model has none.
func (r *rebuild) importStandard() {
	for _, o := range r.proto.OpsetImport {
		if graph.IsStandard(o.GetDomain()) {
			return
		}
	}
	r.proto.OpsetImport = append(r.proto.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: new(""), Version: new(int64(13))})
}

func intsAttr(name string, v ...int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INTS.Enum(), Ints: v}
}
