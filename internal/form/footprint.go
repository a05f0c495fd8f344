package form

import (
	"google.golang.org/protobuf/proto"

	"onnxquant/internal/graph"
)

// Footprint is what a weight adds to a model, in bytes.
type Footprint struct {
	Own    int64            // tensors and nodes that are its own
	Shared map[string]int64 // constants that other weights may share, by type, shape and content
}

// Footprint returns what Build adds. It takes new names from names.
func (w *Weight) Footprint(names *graph.Names) Footprint {
	b := NewBuilder(names)
	w.Build(b)
	f := Footprint{Shared: map[string]int64{}}
	shared := map[string]string{} // name → key
	for key, name := range b.constants {
		shared[name] = key
	}
	for _, t := range b.Tensors {
		n := int64(proto.Size(t))
		if key, ok := shared[t.GetName()]; ok {
			f.Shared[key] = n
		} else {
			f.Own += n + graph.SizeOf(t)
		}
	}
	for _, n := range b.Nodes {
		f.Own += int64(proto.Size(n))
	}
	return f
}
