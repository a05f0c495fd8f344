package execute

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/regularfile"
	"onnxquant/internal/run/npy"
)

// ModelInputs lists the inputs without an initializer. Caches have the size of heads that their operator takes.
func ModelInputs(g *onnxpb.GraphProto) []*onnxpb.ValueInfoProto {
	stored := map[string]bool{}
	for _, t := range g.GetInitializer() {
		stored[t.GetName()] = true
	}
	for _, t := range g.GetSparseInitializer() {
		stored[t.GetValues().GetName()] = true
	}
	inputs := slices.DeleteFunc(slices.Clone(g.GetInput()), func(i *onnxpb.ValueInfoProto) bool { return stored[i.GetName()] })
	sizedCaches(g, inputs)
	return inputs
}

// FixedSize returns the size of a dimension that the model fixes. Some writers use -1 for an
// unknown size.
func FixedSize(dim *onnxpb.TensorShapeProto_Dimension) (n int64, ok bool) {
	v, ok := dim.GetValue().(*onnxpb.TensorShapeProto_Dimension_DimValue)
	if !ok || v.DimValue < 0 {
		return 0, false
	}
	return v.DimValue, true
}

// Vocabulary returns the size of the smallest table that an input of the graph, or of a subgraph,
// indexes; 0 if it indexes none.
func Vocabulary(g *onnxpb.GraphProto, input string) int64 {
	l := lookups{seen: map[string]bool{}}
	l.add(g)
	return l.rows(input)
}

// lookups are the nodes and initializers among which Vocabulary looks.
type lookups struct {
	nodes  []*onnxpb.NodeProto
	tables []*onnxpb.TensorProto
	seen   map[string]bool // values
}

// add adds the nodes and tables of a graph.
func (l *lookups) add(g *onnxpb.GraphProto) {
	l.nodes = append(l.nodes, g.GetNode()...)
	l.tables = append(l.tables, g.GetInitializer()...)
	for _, n := range g.GetNode() {
		for _, a := range n.Attribute {
			if a.G != nil {
				l.add(a.G)
			}
		}
	}
}

// rows returns the size of the smallest table that a value indexes, or 0 if it indexes none.
func (l lookups) rows(value string) int64 {
	if l.seen[value] {
		return 0
	}
	l.seen[value] = true
	least := int64(0)
	note := func(n int64) {
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	for _, n := range l.nodes {
		place := slices.Index(n.Input, value)
		if place < 0 {
			continue
		}
		switch op := n.GetOpType(); {
		case Indexes(n) && place == 1:
			note(l.tableLength(n))
		case place == 0 && len(n.Output) > 0 && slices.Contains([]string{"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose"}, op):
			note(l.rows(n.Output[0]))
		}
	}
	return least
}

// tableLength returns the length of the table that a node indexes, or 0.
func (l lookups) tableLength(n *onnxpb.NodeProto) int64 {
	return TableLength(n, func(name string) *onnxpb.TensorProto {
		if i := slices.IndexFunc(l.tables, func(t *onnxpb.TensorProto) bool { return t.GetName() == name }); i >= 0 {
			return l.tables[i]
		}
		return nil
	}, func(name string) *onnxpb.NodeProto {
		if i := slices.IndexFunc(l.nodes, func(n *onnxpb.NodeProto) bool { return slices.Contains(n.Output, name) }); i >= 0 {
			return l.nodes[i]
		}
		return nil
	})
}

// Indexes reports whether a node looks up rows of a table by its input 1.
func Indexes(n *onnxpb.NodeProto) bool {
	return n.GetOpType() == "Gather" || n.GetOpType() == "GatherBlockQuantized"
}

// TableLength returns the length, along the axis that a node indexes, of the stored tensor that it reads, perhaps transposed; or 0.
// stored finds an initializer by its name, made the node that makes a value; nil if there is none.
func TableLength(n *onnxpb.NodeProto, stored func(string) *onnxpb.TensorProto, made func(string) *onnxpb.NodeProto) int64 {
	name, axis := n.Input[0], intAttribute(n, "axis")
	if n.GetOpType() == "GatherBlockQuantized" && len(n.Input) > 2 { // its codes may be packed, its scales are not
		name, axis = n.Input[2], intAttribute(n, "gather_axis")
	}
	const most = 4 // nodes
	for range most {
		if t := stored(name); t != nil {
			if axis < 0 {
				axis += int64(len(t.Dims))
			}
			if axis >= 0 && axis < int64(len(t.Dims)) {
				return t.Dims[axis]
			}
			return 0
		}
		maker := made(name)
		switch {
		case maker == nil || len(maker.Input) == 0:
			return 0
		case maker.GetOpType() == "Transpose":
			var perm []int64
			for _, a := range maker.Attribute {
				perm = a.GetInts()
			}
			if axis < 0 {
				axis += int64(len(perm))
			}
			if axis < 0 || axis >= int64(len(perm)) {
				return 0
			}
			axis = perm[axis]
		case !slices.Contains([]string{"Cast", "Identity", "DequantizeLinear"}, maker.GetOpType()):
			return 0
		}
		name = maker.Input[0]
	}
	return 0
}

// ReadTensorProto reads a file with one TensorProto, the format of ONNX test data.
func ReadTensorProto(path string) (*Tensor, error) {
	f, size, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch {
	case size > MaxBytes:
		return nil, fmt.Errorf("%s: %d bytes, more than %d MiB", path, size, MaxBytes>>20)
	case size == 0:
		return nil, fmt.Errorf("%s: the file is empty; want a TensorProto, as onnx.numpy_helper.from_array makes it", path)
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(f, raw); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m := &onnxpb.TensorProto{}
	if err := proto.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("%s: not a TensorProto: %w", path, err)
	}
	t, err := fromProto(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// fromProto converts a tensor whose content is in raw_data or a typed field.
func fromProto(m *onnxpb.TensorProto) (*Tensor, error) {
	typ := dtype.DType(m.GetDataType())
	var t *Tensor
	var err error
	switch {
	case m.GetDataLocation() == onnxpb.TensorProto_EXTERNAL:
		return nil, errors.New("external data is not supported here")
	case len(m.RawData) > 0:
		if t, err = New(typ, m.GetDims()); err == nil && typ.Bytes(int64(t.Len())) != int64(len(m.RawData)) {
			err = fmt.Errorf("%d bytes for %v %v", len(m.RawData), typ, m.GetDims())
		}
		if err == nil {
			t.Data = Unpack(typ, t.Len(), m.RawData)
		}
	case typ == dtype.String:
		if t, err = New(typ, m.GetDims()); err == nil && len(t.Text) != len(m.StringData) {
			err = fmt.Errorf("%d strings for dims %v", len(m.StringData), m.GetDims())
		}
		for i := range m.StringData {
			if err == nil {
				t.Text[i] = string(m.StringData[i])
			}
		}
	case typ.Bits() < 6: // packed bytes, each in a number of 32 bits; elements of 6 bits have one each
		raw := make([]byte, len(m.Int32Data))
		for i, v := range m.Int32Data {
			raw[i] = byte(v)
		}
		if t, err = New(typ, m.GetDims()); err == nil && typ.Bytes(int64(t.Len())) != int64(len(raw)) {
			err = fmt.Errorf("%d bytes for %v %v", len(raw), typ, m.GetDims())
		}
		if err == nil {
			t.Data = Unpack(typ, t.Len(), raw)
		}
	case typ == dtype.Float32:
		t, err = FromFloat32s(typ, m.GetDims(), m.FloatData)
	case typ == dtype.Float64:
		t, err = FromFloat64s(typ, m.GetDims(), m.DoubleData)
	case typ == dtype.Int64:
		t, err = FromInt64s(typ, m.GetDims(), m.Int64Data)
	case typ == dtype.Uint64 || typ == dtype.Uint32:
		t, err = FromInt64s(typ, m.GetDims(), widened(m.Uint64Data))
	default:
		t, err = FromInt64s(typ, m.GetDims(), widened(m.Int32Data))
	}
	if err != nil {
		return nil, err
	}
	t.Name = m.GetName()
	return t, nil
}

func widened[T int32 | uint64](x []T) []int64 {
	wide := make([]int64, len(x))
	for i, v := range x {
		wide[i] = int64(v)
	}
	return wide
}

// arrayTypes maps types of numpy arrays.
var arrayTypes = map[string]dtype.DType{
	"f2": dtype.Float16, "f4": dtype.Float32, "f8": dtype.Float64, "b1": dtype.Bool,
	"i1": dtype.Int8, "i2": dtype.Int16, "i4": dtype.Int32, "i8": dtype.Int64,
	"u1": dtype.Uint8, "u2": dtype.Uint16, "u4": dtype.Uint32, "u8": dtype.Uint64,
}

// ArrayType returns the type of the elements of an array.
func ArrayType(a *npy.Array) (dtype.DType, error) {
	typ, ok := arrayTypes[a.Type]
	if !ok {
		return 0, fmt.Errorf("elements of type %s are not supported", a.Type)
	}
	return typ, nil
}
