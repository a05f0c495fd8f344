package sensitivity

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/convert"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/work"
)

// storeConstants replaces the model by a copy in which weights in Constant nodes are initializers: a
// run cannot replace the output of a node.
func (s *Sensitivity) storeConstants(ctx context.Context) error {
	p, stored, constants := withoutConstants(s.model.Proto)
	if len(stored) == 0 {
		return nil
	}
	own := s.model
	view, err := own.View(p, func(t *onnxpb.TensorProto) (*modelfile.Payload, error) {
		if i := slices.Index(stored, t); i >= 0 {
			t = constants[i]
		}
		return own.Payload(t)
	})
	if err != nil {
		return err
	}
	if s.folder, err = os.MkdirTemp("", "onnxquant-sensitivity-"); err != nil {
		return err
	}
	path := filepath.Join(s.folder, "float.onnx")
	if err := convert.WriteFloat(ctx, view, path, 0, work.DefaultMemory); err != nil {
		return err
	}
	m, err := modelfile.Open(path)
	if err != nil {
		return err
	}
	own.Close()
	s.model, s.path = m, path
	return nil
}

// withoutConstants returns a model with initializers in place of the Constant nodes of its main
// graph that make matrices. stored are these initializers, constants the tensors of the nodes.
func withoutConstants(m *onnxpb.ModelProto) (p *onnxpb.ModelProto, stored, constants []*onnxpb.TensorProto) {
	own := m.GetGraph()
	g := &onnxpb.GraphProto{
		Name: own.Name, Input: own.Input, Output: own.Output, ValueInfo: own.ValueInfo,
		Initializer: own.Initializer[:len(own.Initializer):len(own.Initializer)], SparseInitializer: own.SparseInitializer,
	}
	for _, n := range own.GetNode() {
		t := constant(n)
		if t == nil {
			g.Node = append(g.Node, n)
			continue
		}
		stored = append(stored, &onnxpb.TensorProto{Name: &n.Output[0], DataType: t.DataType, Dims: t.Dims})
		constants = append(constants, t)
	}
	g.Initializer = append(g.Initializer, stored...)
	const free = 4 // from this version on, initializers need not be inputs
	version := max(m.GetIrVersion(), free)
	return &onnxpb.ModelProto{IrVersion: &version, OpsetImport: m.OpsetImport, Functions: m.Functions, Graph: g}, stored, constants
}

// constant returns the matrix of floating-point numbers that a node makes, or nil.
func constant(n *onnxpb.NodeProto) *onnxpb.TensorProto {
	if n.GetOpType() != "Constant" || len(n.Output) != 1 {
		return nil
	}
	for _, a := range n.Attribute {
		if t := a.GetT(); a.GetName() == "value" && dtype.DType(t.GetDataType()).Float() && len(t.GetDims()) > 1 {
			return t
		}
	}
	return nil
}
