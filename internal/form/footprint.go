package form

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// Footprint is what a weight adds to a model, in bytes.
type Footprint struct {
	Own    int64            // tensors and nodes of this weight alone
	Shared map[string]int64 // constants that other weights may share, by type, shape and content
}

// Footprint returns what Build adds. It takes new names from names.
func (w *Weight) Footprint(names *graph.Names) Footprint {
	b := NewBuilder(names)
	w.Build(b)
	return b.Since(Mark{})
}

// Mark is a state of a Builder, to which Since refers.
type Mark struct{ tensors, nodes, asked int }

// Mark returns the present state.
func (b *Builder) Mark() Mark { return Mark{len(b.Tensors), len(b.Nodes), len(b.asked)} }

// Since returns the footprint of all that was added or asked for since m.
func (b *Builder) Since(m Mark) Footprint {
	f := Footprint{Shared: map[string]int64{}}
	for _, key := range b.asked[m.asked:] {
		f.Shared[key] = TensorBytes(b.constants[key])
	}
	shared := map[string]bool{} // by name
	for _, t := range b.constants {
		shared[t.GetName()] = true
	}
	for _, t := range b.Tensors[m.tensors:] {
		if !shared[t.GetName()] {
			f.Own += TensorBytes(t)
		}
	}
	for _, n := range b.Nodes[m.nodes:] {
		f.Own += NodeBytes(n)
	}
	return f
}

// TensorBytes is the size of a tensor in the graph of a file, with its content.
func TensorBytes(t *onnxpb.TensorProto) int64 { return int64(field(whole(t))) }

// NodeBytes is the size of a node in the graph of a file, with the contents of its tensors.
func NodeBytes(n *onnxpb.NodeProto) int64 {
	sum := proto.Size(n)
	for _, a := range n.Attribute {
		if a.T != nil {
			size := proto.Size(a)
			sum += field(size-field(proto.Size(a.T))+field(whole(a.T))) - field(size)
		}
	}
	return int64(field(sum))
}

// whole is the size of a tensor including a content that may be stored elsewhere.
func whole(t *onnxpb.TensorProto) int {
	n := proto.Size(t)
	if len(t.Payload)+len(t.ExternalData) > 0 {
		n += field(int(graph.SizeOf(t))) - proto.Size(&onnxpb.TensorProto{Payload: t.Payload, ExternalData: t.ExternalData, DataLocation: t.DataLocation})
	}
	return n
}

// field is the size of a protobuf field of n bytes with its tag. The tag has one byte, as for
// nodes, initializers and raw_data.
func field(n int) int { return 1 + protowire.SizeBytes(n) }
