package inspect

import (
	"cmp"
	"maps"
	"path"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/intops"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/provenance"
	"onnxquant/internal/recognize"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// Inspection describes a model, the planned conversion of it, and its hazards.
type Inspection struct {
	IR       int64          `json:"ir"`
	Opsets   []OpsetVersion `json:"opsets"`
	Producer string         `json:"producer"` // with its version
	Graph    string         `json:"graph"`
	Inputs   []NamedType    `json:"inputs"` // without initializers
	Outputs  []NamedType    `json:"outputs"`

	Nodes     int            `json:"nodes"` // of all graphs and functions
	Operators map[string]int `json:"operators"`
	Subgraphs int            `json:"subgraphs"`
	Functions int            `json:"functions"`

	FileBytes int64          `json:"file_bytes"`
	Bytes     int64          `json:"bytes"` // with external data
	Types     []TypeShare    `json:"types"` // of stored tensors, the largest share first
	External  []ExternalFile `json:"external"`

	Fingerprint *spec.StepInput `json:"fingerprint,omitempty"` // as the record of a conversion would name it
	Provenance  []spec.Step     `json:"provenance,omitempty"`  // conversions that made the model, the newest last

	Quantized   []*recognize.Weight `json:"quantized"`
	Activations map[string]int      `json:"activations,omitempty"` // tensors with a QuantizeLinear and a DequantizeLinear around them, by the type of the codes

	Plan    *onnxq.Plan `json:"plan,omitempty"`    // of a conversion with the given options
	NoPlan  string      `json:"no_plan,omitempty"` // why there is no plan
	Hazards []Hazard    `json:"hazards"`
}

// OpsetVersion is an imported domain of operators; "" is ONNX's.
type OpsetVersion struct {
	Domain  string `json:"domain"`
	Version int64  `json:"version"`
}

// NamedType is an input or output, such as "x", "FLOAT [batch 64]".
type NamedType struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// TypeShare counts the tensors of a type, including tensors in attributes of nodes. Bytes is the size
// of their contents; strings count as 0.
type TypeShare struct {
	DType   string `json:"dtype"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// ExternalFile is a file with contents of tensors.
type ExternalFile struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	Tensors int    `json:"tensors"`
	Used    int64  `json:"used"` // bytes that tensors refer to
}

// Model inspects a model. It reads only the structure, and the few contents that are needed
// to recognize the form of a quantized weight.
func Model(m *onnxq.Model, opts onnxq.Options) *Inspection {
	x := m.Graph()
	p := x.File.Proto
	in := &Inspection{
		IR:        p.GetIrVersion(),
		Opsets:    []OpsetVersion{},
		Producer:  p.GetProducerName(),
		Graph:     p.GetGraph().GetName(),
		Inputs:    namedTypes(graph.RuntimeInputs(p.Graph)),
		Outputs:   namedTypes(p.GetGraph().GetOutput()),
		Operators: map[string]int{},
		Functions: len(p.Functions),
		FileBytes: x.File.FileSize(),
		Bytes:     m.Size(),
		Quantized: Quantized(m),

		Activations: recognize.Activations(x),
	}
	in.Provenance = provenance.Of(p)
	in.Fingerprint, _ = provenance.InputOf(x.File) // an error shows when the contents are read
	if v := p.GetProducerVersion(); v != "" {
		in.Producer += " " + v
	}
	for _, o := range p.OpsetImport {
		in.Opsets = append(in.Opsets, OpsetVersion{o.GetDomain(), o.GetVersion()})
	}
	graph.WalkNodes(p, func(n *onnxpb.NodeProto) {
		in.Nodes++
		in.Operators[graph.Operator(n)]++
		for _, a := range n.Attribute {
			in.Subgraphs += len(graph.Subgraphs(a))
		}
	})
	if in.Quantized == nil {
		in.Quantized = []*recognize.Weight{}
	}
	in.tensors(x)
	opts.AllowFallback = true
	plan, err := m.Plan(opts)
	if err != nil {
		in.NoPlan = err.Error()
	} else {
		in.Plan = plan
	}
	in.Hazards = hazards(x, in)
	return in
}

// Quantized returns the quantized weights of a model, in any form that package restyle decodes.
func Quantized(m *onnxq.Model) []*recognize.Weight { return intops.Weights(m.Graph()) }

// tensors counts the stored tensors, by type and by file.
func (in *Inspection) tensors(x *graph.Graph) {
	types, files := map[string]*TypeShare{}, map[string]*ExternalFile{}
	for name, size := range x.File.Externals() {
		files[name] = &ExternalFile{Name: name, Bytes: size}
	}
	for _, t := range modelfile.Tensors(x.File.Proto) {
		typ, size := dtype.DType(t.GetDataType()).String(), graph.SizeOf(t)
		share := types[typ]
		if share == nil {
			share = &TypeShare{DType: typ}
			types[typ] = share
		}
		share.Tensors++
		share.Bytes += size
		if t.GetDataLocation() != onnxpb.TensorProto_EXTERNAL {
			continue
		}
		if e, err := modelfile.ParseExternal(t); err == nil { // no error: the model was opened
			if f := files[path.Clean(e.Location)]; f != nil {
				f.Tensors++
				f.Used += size
			}
		}
	}
	in.Types, in.External = []TypeShare{}, []ExternalFile{}
	for _, s := range types {
		in.Types = append(in.Types, *s)
	}
	slices.SortFunc(in.Types, func(a, b TypeShare) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.DType, b.DType))
	})
	for _, name := range slices.Sorted(maps.Keys(files)) {
		in.External = append(in.External, *files[name])
	}
}

func namedTypes(values []*onnxpb.ValueInfoProto) []NamedType {
	list := make([]NamedType, len(values))
	for i, v := range values {
		list[i] = NamedType{v.GetName(), graph.TypeText(v.GetType())}
	}
	return list
}
