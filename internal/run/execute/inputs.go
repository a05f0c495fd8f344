package execute

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/nearest"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/regularfile"
	"onnxquant/internal/run/npy"
)

// InputOptions describes random inputs.
type InputOptions struct {
	Seed  uint64
	Dims  map[string]int64 // sizes of symbolic dimensions
	Usual Usual            // sizes of the other dimensions; zero: UsualSizes[0]
}

// Usual are sizes of symbolic dimensions, told apart by their names and places.
type Usual struct{ Batch, Past, Sequence int64 }

// UsualSizes are sizes to try, in order. Some models take only one sample at a time, some no empty
// past, and models of sound and images only longer inputs.
var UsualSizes = []Usual{{2, 0, 8}, {1, 0, 8}, {1, 1, 8}, {1, 0, 64}, {1, 0, 512}}

// Inputs makes a random value for every input of the model that has no initializer:
//
//   - floats: from the standard normal distribution,
//   - bools: random,
//   - integers with "pos" in the input's name: 0, 1, 2, …,
//   - integers that a Gather takes as indices: valid ones,
//   - integers with "mask" or "len" in the name: 1, or the length of the sequence,
//   - other integers: 0 or 1.
//
// A symbolic dimension has the size given in Dims. Without a size there, it is
//
//   - for a name such as a + 1: the sum,
//   - with "total" in the name: the sum of past and sequence,
//   - with "past" in the name: the past,
//   - the first dimension of an input: the batch,
//   - else: the sequence.
func Inputs(m *modelfile.Model, opts InputOptions) ([]*Tensor, error) {
	infos := ModelInputs(m.Proto.GetGraph())
	usual := opts.Usual
	if usual == (Usual{}) {
		usual = UsualSizes[0]
	}
	g := &generator{graph: m.Proto.GetGraph(), sizes: map[string]int64{}, usual: usual}
	for _, name := range slices.Sorted(maps.Keys(opts.Dims)) {
		if err := checkDimension(name, infos); err != nil {
			return nil, err
		}
		g.sizes[name] = opts.Dims[name]
	}
	var inputs []*Tensor
	total := 0
	for i, info := range infos {
		g.rng = rand.New(rand.NewPCG(opts.Seed, uint64(i)))
		t, err := g.input(info)
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", strconv.Quote(info.GetName()), err)
		}
		if total += len(t.Data); total > MaxBytes {
			return nil, fmt.Errorf("the inputs are larger than %d MiB", MaxBytes>>20)
		}
		inputs = append(inputs, t)
	}
	return inputs, nil
}

// checkDimension returns an error if no input has a symbolic dimension of that name.
func checkDimension(name string, infos []*onnxpb.ValueInfoProto) error {
	var names []string
	for _, info := range infos {
		for _, dim := range info.GetType().GetTensorType().GetShape().GetDim() {
			names = append(names, dim.GetDimParam())
		}
	}
	if name != "" && slices.Contains(names, name) {
		return nil
	}
	message := fmt.Sprintf("no input has a dimension called %q", name)
	if near, ok := nearest.Name(name, names); ok {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	return errors.New(message)
}

// Sizes lists the sizes that inputs give to symbolic dimensions, as NAME=N.
func Sizes(m *modelfile.Model, inputs []*Tensor) []string {
	var sizes []string
	for _, info := range m.Proto.GetGraph().GetInput() {
		i := slices.IndexFunc(inputs, func(t *Tensor) bool { return t.Name == info.GetName() })
		for k, dim := range info.GetType().GetTensorType().GetShape().GetDim() {
			name := dim.GetDimParam()
			if i < 0 || name == "" || k >= len(inputs[i].Dims) {
				continue
			}
			if size := fmt.Sprintf("%s=%d", name, inputs[i].Dims[k]); !slices.Contains(sizes, size) {
				sizes = append(sizes, size)
			}
		}
	}
	return sizes
}

// ModelInputs lists the inputs without an initializer.
func ModelInputs(g *onnxpb.GraphProto) []*onnxpb.ValueInfoProto {
	stored := map[string]bool{}
	for _, t := range g.GetInitializer() {
		stored[t.GetName()] = true
	}
	for _, t := range g.GetSparseInitializer() {
		stored[t.GetValues().GetName()] = true
	}
	return slices.DeleteFunc(slices.Clone(g.GetInput()), func(i *onnxpb.ValueInfoProto) bool { return stored[i.GetName()] })
}

// generator makes random inputs.
type generator struct {
	graph *onnxpb.GraphProto
	sizes map[string]int64 // of symbolic dimensions
	usual Usual
	rng   *rand.Rand
}

func (g *generator) input(info *onnxpb.ValueInfoProto) (*Tensor, error) {
	typ := info.GetType().GetTensorType()
	if typ == nil {
		return nil, errors.New("not a tensor; give inputs in files (--inputs)")
	}
	dims := []int64{}
	for i, dim := range typ.GetShape().GetDim() {
		dims = append(dims, g.size(dim, i == 0))
	}
	t, err := New(dtype.DType(typ.GetElemType()), dims)
	if err != nil {
		return nil, err
	}
	t.Name = info.GetName()
	switch {
	case t.IsFloat():
		x := make([]float64, t.Len())
		for i := range x {
			x[i] = g.rng.NormFloat64()
		}
		t, err = FromFloat64s(t.DType, dims, x)
	case !t.DType.Integer() && t.DType != dtype.Bool: // string, complex, float8
		return nil, fmt.Errorf("no random inputs of type %v; give inputs in files (--inputs)", t.DType)
	default:
		t, err = FromInt64s(t.DType, dims, g.integers(t))
	}
	if err != nil {
		return nil, err
	}
	t.Name = info.GetName()
	return t, nil
}

func (g *generator) size(dim *onnxpb.TensorShapeProto_Dimension, first bool) int64 {
	if n, ok := FixedSize(dim); ok {
		return n
	}
	n := g.named(dim.GetDimParam(), first)
	g.sizes[dim.GetDimParam()] = n
	return n
}

// named returns the size of a symbolic dimension, perhaps the first of an input.
func (g *generator) named(name string, first bool) int64 {
	if n, ok := g.sizes[name]; ok && name != "" {
		return n
	}
	if parts := strings.Split(name, "+"); len(parts) > 1 && len(parts) < 4 {
		sum := int64(0)
		for _, part := range parts {
			part = strings.TrimSpace(part)
			n, err := strconv.ParseUint(part, 10, 16)
			if err != nil {
				n = uint64(g.named(part, false))
			}
			sum += int64(n)
		}
		return sum
	}
	switch {
	case strings.Contains(name, "total"):
		return g.usual.Past + g.usual.Sequence
	case strings.Contains(name, "past"):
		return g.usual.Past
	case first:
		return g.usual.Batch
	}
	return g.usual.Sequence
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

func (g *generator) integers(t *Tensor) []int64 {
	x := make([]int64, t.Len())
	name := strings.ToLower(t.Name)
	rows := Vocabulary(g.graph, t.Name)
	last := int64(1)
	if n := len(t.Dims); n > 0 {
		last = max(t.Dims[n-1], 1)
	}
	for i := range x {
		switch {
		case t.DType == dtype.Bool:
			x[i] = g.rng.Int64N(2)
		case strings.Contains(name, "pos"):
			x[i] = int64(i) % last
		case rows > 0:
			x[i] = g.rng.Int64N(min(rows, 1<<(t.DType.Bits()-1)-1))
		case strings.Contains(name, "mask"):
			x[i] = 1
		case strings.Contains(name, "len"):
			x[i] = g.usual.Sequence
		default:
			x[i] = g.rng.Int64N(2)
		}
	}
	return x
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
		case op == "Gather" && place == 1:
			note(l.tableLength(n))
		case place == 0 && len(n.Output) > 0 && slices.Contains([]string{"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose"}, op):
			note(l.rows(n.Output[0]))
		}
	}
	return least
}

// tableLength returns the length, along the axis of a Gather, of the initializer that it reads, or 0.
func (l lookups) tableLength(n *onnxpb.NodeProto) int64 {
	a := int64(0)
	for _, attr := range n.Attribute {
		if attr.GetName() == "axis" {
			a = attr.GetI()
		}
	}
	for _, t := range l.tables {
		if t.GetName() == n.Input[0] {
			if a < 0 {
				a += int64(len(t.Dims))
			}
			if a >= 0 && a < int64(len(t.Dims)) {
				return t.Dims[a]
			}
		}
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
		if t, err = New(typ, m.GetDims()); err == nil && len(t.Data) != len(m.RawData) {
			err = fmt.Errorf("%d bytes for %v %v", len(m.RawData), typ, m.GetDims())
		}
		if err == nil {
			t.Data = m.RawData
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
