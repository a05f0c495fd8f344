package execute

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/nearest"
	"onnxquant/internal/npy"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/regularfile"
)

// InputOptions say where inputs come from.
type InputOptions struct {
	// Files are .pb files, each a TensorProto, and .npy and .npz files. An array is
	// for the input of its name; one of another name, or without, is for the input
	// of its place among those. Without files, inputs are random.
	Files []string

	Seed uint64           // of random inputs
	Dims map[string]int64 // sizes of symbolic dimensions
}

// Inputs makes a value for every input of the model that no initializer is for.
//
// Random floating-point numbers are from the standard normal distribution. Integers
// are rows of a table if a Gather takes them for that. Else the input's name
// decides, which is a guess: a mask is all ones, positions count from 0, lengths
// are the size of the sequence; what is left is 0 or 1. Symbolic dimensions of one
// name have one size: that of Dims, or 0 for a name with "past" in it, 2 for the
// first dimension of an input, and 8 for others.
func Inputs(m *modelfile.Model, opts InputOptions) ([]*Tensor, error) {
	infos := inputInfos(m.Proto.GetGraph())
	if len(opts.Files) > 0 {
		return inputsFromFiles(infos, opts.Files)
	}
	d := &dice{graph: m.Proto.GetGraph(), sizes: map[string]int64{}, sequence: 8}
	for name, n := range opts.Dims {
		if err := checkDimension(name, infos); err != nil {
			return nil, err
		}
		d.sizes[name] = n
	}
	var inputs []*Tensor
	total := 0
	for i, info := range infos {
		d.rng = rand.New(rand.NewPCG(opts.Seed, uint64(i)))
		t, err := d.input(info)
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

// checkDimension refuses the name of a dimension that no input has.
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
		message += fmt.Sprintf("; the nearest is %q", near)
	}
	return errors.New(message)
}

// inputInfos lists the inputs that need a value.
func inputInfos(g *onnxpb.GraphProto) []*onnxpb.ValueInfoProto {
	stored := map[string]bool{}
	for _, t := range g.GetInitializer() {
		stored[t.GetName()] = true
	}
	for _, t := range g.GetSparseInitializer() {
		stored[t.GetValues().GetName()] = true
	}
	return slices.DeleteFunc(slices.Clone(g.GetInput()), func(i *onnxpb.ValueInfoProto) bool { return stored[i.GetName()] })
}

// dice makes random inputs.
type dice struct {
	graph    *onnxpb.GraphProto
	sizes    map[string]int64 // of symbolic dimensions
	sequence int64            // the usual size
	rng      *rand.Rand
}

func (d *dice) input(info *onnxpb.ValueInfoProto) (*Tensor, error) {
	typ := info.GetType().GetTensorType()
	if typ == nil {
		return nil, errors.New("it is no tensor: give inputs in files")
	}
	dims := []int64{}
	for i, dim := range typ.GetShape().GetDim() {
		n, err := d.size(info, i, dim)
		if err != nil {
			return nil, err
		}
		dims = append(dims, n)
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
			x[i] = d.rng.NormFloat64()
		}
		t, err = FromFloat64s(t.DType, dims, x)
	case t.DType == dtype.String, t.DType == 0:
		return nil, fmt.Errorf("its type is %v: give inputs in files", t.DType)
	default:
		t, err = FromInt64s(t.DType, dims, d.integers(t))
	}
	if err != nil {
		return nil, err
	}
	t.Name = info.GetName()
	return t, nil
}

func (d *dice) size(info *onnxpb.ValueInfoProto, i int, dim *onnxpb.TensorShapeProto_Dimension) (int64, error) {
	if v, ok := dim.GetValue().(*onnxpb.TensorShapeProto_Dimension_DimValue); ok && v.DimValue >= 0 {
		return v.DimValue, nil
	}
	name := dim.GetDimParam()
	if n, ok := d.sizes[name]; ok && name != "" {
		return n, nil
	}
	n := d.sequence
	switch {
	case strings.Contains(name, "past"):
		n = 0
	case i == 0:
		n = 2
	}
	d.sizes[name] = n
	return n, nil
}

func (d *dice) integers(t *Tensor) []int64 {
	x := make([]int64, t.Len())
	name := strings.ToLower(t.Name)
	rows := d.rows(t.Name, map[string]bool{})
	last := int64(1)
	if n := len(t.Dims); n > 0 {
		last = max(t.Dims[n-1], 1)
	}
	for i := range x {
		switch {
		case t.DType == dtype.Bool:
			x[i] = d.rng.Int64N(2)
		case strings.Contains(name, "pos"):
			x[i] = int64(i) % last
		case rows > 0:
			x[i] = d.rng.Int64N(min(rows, 1<<(t.DType.Bits()-1)-1))
		case strings.Contains(name, "mask"):
			x[i] = 1
		case strings.Contains(name, "len"):
			x[i] = d.sequence
		default:
			x[i] = d.rng.Int64N(2)
		}
	}
	return x
}

// rows returns how many rows the smallest table has that a value is an index of,
// 0 if there is none.
func (d *dice) rows(value string, seen map[string]bool) int64 {
	if seen[value] {
		return 0
	}
	seen[value] = true
	least := int64(0)
	note := func(n int64) {
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	for _, n := range d.graph.Node {
		place := slices.Index(n.Input, value)
		if place < 0 {
			continue
		}
		switch op := n.GetOpType(); {
		case op == "Gather" && place == 1:
			note(d.table(n))
		case place == 0 && len(n.Output) > 0 && slices.Contains([]string{"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose"}, op):
			note(d.rows(n.Output[0], seen))
		}
	}
	return least
}

// table returns the size of the axis along which a Gather takes from a tensor.
func (d *dice) table(n *onnxpb.NodeProto) int64 {
	a := int64(0)
	for _, attr := range n.Attribute {
		if attr.GetName() == "axis" {
			a = attr.GetI()
		}
	}
	for _, t := range d.graph.Initializer {
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

func inputsFromFiles(infos []*onnxpb.ValueInfoProto, files []string) ([]*Tensor, error) {
	var found []*Tensor
	left := int64(MaxBytes)
	keep := func(t *Tensor, err error) error {
		if err == nil {
			left -= int64(len(t.Data))
		}
		switch {
		case err != nil:
			return err
		case len(found) == len(infos):
			return fmt.Errorf("more tensors than the %d inputs %s", len(infos), inputNames(infos))
		case left < 0:
			return fmt.Errorf("the inputs are larger than %d MiB", MaxBytes>>20)
		}
		found = append(found, t)
		return nil
	}
	for _, path := range files {
		var err error
		if strings.HasSuffix(path, ".pb") {
			err = keep(readTensorProto(path))
		} else {
			err = npy.Each(path, func(a *npy.Array) error { return keep(fromArray(a, left)) })
		}
		if err != nil {
			return nil, err
		}
	}
	if len(found) != len(infos) {
		return nil, fmt.Errorf("%s: %d tensors for the %d inputs %s", strings.Join(files, ", "), len(found), len(infos), inputNames(infos))
	}
	inputs := make([]*Tensor, len(infos))
	rest := slices.Clone(found)
	for i, info := range infos {
		if k := slices.IndexFunc(rest, func(t *Tensor) bool { return t.Name == info.GetName() }); k >= 0 {
			inputs[i] = rest[k]
			rest = slices.Delete(rest, k, k+1)
		}
	}
	for i, info := range infos {
		if inputs[i] == nil {
			inputs[i], rest = rest[0], rest[1:]
			inputs[i].Name = info.GetName()
		}
		if err := fits(inputs[i], info); err != nil {
			return nil, fmt.Errorf("input %s: %w", strconv.Quote(info.GetName()), err)
		}
	}
	return inputs, nil
}

func inputNames(infos []*onnxpb.ValueInfoProto) string {
	var names []string
	for _, i := range infos {
		names = append(names, strconv.Quote(i.GetName()))
	}
	return strings.Join(names, ", ")
}

// fits compares a tensor with the type that an input declares.
func fits(t *Tensor, info *onnxpb.ValueInfoProto) error {
	typ := info.GetType().GetTensorType()
	if want := dtype.DType(typ.GetElemType()); t.DType != want {
		return fmt.Errorf("the file has %v, the model wants %v", t.DType, want)
	}
	if typ.GetShape() == nil {
		return nil
	}
	dims := typ.GetShape().GetDim()
	bad := len(dims) != len(t.Dims)
	for i := 0; !bad && i < len(dims); i++ {
		v, ok := dims[i].GetValue().(*onnxpb.TensorShapeProto_Dimension_DimValue)
		bad = ok && v.DimValue != t.Dims[i]
	}
	if bad {
		return fmt.Errorf("the file has dims %v, which are not the model's", t.Dims)
	}
	return nil
}

// readTensorProto reads a file that holds one TensorProto, as the test data of
// models do.
func readTensorProto(path string) (*Tensor, error) {
	f, size, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > MaxBytes {
		return nil, fmt.Errorf("%s: %d bytes, more than %d MiB", path, size, MaxBytes>>20)
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(f, raw); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m := &onnxpb.TensorProto{}
	if err := proto.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("%s: no TensorProto: %w", path, err)
	}
	t, err := fromProto(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// fromProto takes the content of a tensor that lies in raw_data or a typed field.
func fromProto(m *onnxpb.TensorProto) (*Tensor, error) {
	typ := dtype.DType(m.GetDataType())
	var t *Tensor
	var err error
	switch {
	case m.GetDataLocation() == onnxpb.TensorProto_EXTERNAL:
		return nil, errors.New("its data are in another file")
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

// arrayTypes are the types of numpy's arrays.
var arrayTypes = map[string]dtype.DType{
	"f2": dtype.Float16, "f4": dtype.Float32, "f8": dtype.Float64, "b1": dtype.Bool,
	"i1": dtype.Int8, "i2": dtype.Int16, "i4": dtype.Int32, "i8": dtype.Int64,
	"u1": dtype.Uint8, "u2": dtype.Uint16, "u4": dtype.Uint32, "u8": dtype.Uint64,
}

func fromArray(a *npy.Array, limit int64) (*Tensor, error) {
	typ, ok := arrayTypes[a.Type]
	if !ok {
		return nil, fmt.Errorf("elements of type %s", a.Type)
	}
	raw, err := a.ReadAll(limit)
	if err != nil {
		return nil, err
	}
	return &Tensor{Name: a.Name, DType: typ, Dims: a.Shape, Data: raw}, nil
}
