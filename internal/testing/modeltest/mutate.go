package modeltest

import (
	"encoding/binary"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// Mutate changes a model in a few places. It copies, drops, exchanges and replaces fields of
// any message – nodes, tensors, attributes, graphs, functions, names, dimensions, types –
// also by those of another model.
func Mutate(rng *rand.Rand, m, other *onnxpb.ModelProto) {
	for range 1 + rng.IntN(4) {
		mutateField(rng, m, other)
	}
}

// Vary changes how a model spells what it does: where contents are, what lies between a weight
// and its readers, how many read it, types and sizes of weights. A model in order mostly stays so.
func Vary(rng *rand.Rand, m *onnxpb.ModelProto) {
	for range 1 + rng.IntN(4) {
		variations[rng.IntN(len(variations))](rng, m)
	}
}

// A site is a field of a message in a model.
type site struct {
	in    protoreflect.Message
	field protoreflect.FieldDescriptor
}

// sitesOf returns the sites of a model by the names of their fields, so that a mutation finds
// rare fields as often as common ones.
func sitesOf(m proto.Message) map[protoreflect.FullName][]site {
	sites := map[protoreflect.FullName][]site{}
	var walk func(protoreflect.Message)
	walk = func(in protoreflect.Message) {
		fields := in.Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			sites[f.FullName()] = append(sites[f.FullName()], site{in, f})
			switch {
			case f.Message() == nil || !in.Has(f):
			case f.IsList():
				for list, i := in.Get(f).List(), 0; i < list.Len(); i++ {
					walk(list.Get(i).Message())
				}
			default:
				walk(in.Get(f).Message())
			}
		}
	}
	walk(m.ProtoReflect())
	return sites
}

// mutateField changes one field.
func mutateField(rng *rand.Rand, m, other *onnxpb.ModelProto) {
	sites := sitesOf(m)
	name := pick(rng, slices.Sorted(maps.Keys(sites)))
	s := pick(rng, sites[name])
	from := slices.DeleteFunc(slices.Concat(sites[name], sitesOf(other)[name]), func(s site) bool { return !s.in.Has(s.field) })
	if !s.field.IsList() {
		switch {
		case s.in.Has(s.field) && rng.IntN(6) == 0:
			s.in.Clear(s.field)
		case s.field.Message() != nil || len(from) > 0 && rng.IntN(2) == 0:
			if len(from) > 0 {
				donor := pick(rng, from)
				s.in.Set(s.field, cloneValue(s.field, donor.in.Get(s.field)))
			}
		default:
			s.in.Set(s.field, scalar(rng, s.field, s.in.Get(s.field)))
		}
		return
	}
	list := s.in.Mutable(s.field).List()
	at := func() int { return rng.IntN(list.Len()) }
	switch action := rng.IntN(6); {
	case action == 0 && list.Len() > 0: // drop
		i := at()
		for ; i+1 < list.Len(); i++ {
			list.Set(i, list.Get(i+1))
		}
		list.Truncate(i)
	case action == 1 && list.Len() > 1: // exchange
		i, j := at(), at()
		a, b := cloneValue(s.field, list.Get(i)), cloneValue(s.field, list.Get(j))
		list.Set(i, b)
		list.Set(j, a)
	case action == 2 && list.Len() > 0: // repeat
		list.Append(cloneValue(s.field, list.Get(at())))
	case action == 3 && s.field.Message() == nil && list.Len() > 0: // change
		i := at()
		list.Set(i, scalar(rng, s.field, list.Get(i)))
	case len(from) > 0: // take an element of another
		donor := pick(rng, from)
		others := donor.in.Get(s.field).List()
		v := cloneValue(s.field, others.Get(rng.IntN(others.Len())))
		if list.Len() > 0 && rng.IntN(2) == 0 {
			list.Set(at(), v)
		} else {
			list.Append(v)
		}
	case s.field.Message() == nil:
		list.Append(scalar(rng, s.field, list.NewElement()))
	}
}

func pick[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

func cloneValue(f protoreflect.FieldDescriptor, v protoreflect.Value) protoreflect.Value {
	if f.Message() == nil {
		return v
	}
	return protoreflect.ValueOfMessage(proto.Clone(v.Message().Interface()).ProtoReflect())
}

// scalar returns another value for a field that is no message.
func scalar(rng *rand.Rand, f protoreflect.FieldDescriptor, old protoreflect.Value) protoreflect.Value {
	number := func(was int64) int64 {
		return pick(rng, []int64{was - 1, was + 1, -was, 2 * was, 0, 1, -1, int64(rng.IntN(24)), int64(rng.IntN(300)),
			math.MaxInt32, math.MaxInt64, math.MinInt64, 1 << 40})
	}
	switch f.Kind() {
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rng.IntN(26) - 1))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(number(0)))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(number(old.Int()))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(number(1)))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(number(1)))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(oddNumber(rng)))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(oddNumber(rng))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(oddBytes(rng, slices.Clone(old.Bytes())))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(pick(rng, []string{"", "x", "y", "w", "axis", "a\nb", "\x1b[2J", "Ω", "ai.onnx", "com.microsoft",
			"w.bin/.", "./w.bin", "MatMul", "Gemm", "Gather", "Transpose", "Reshape", "Identity", "Cast", "DequantizeLinear", "QuantizeLinear", "MatMulNBits",
			"GatherBlockQuantized", "LSTM", "Conv", "Einsum", "If", "Loop", "Scan", "Constant", "Concat", "Slice", "Mul", "Add"}))
	}
	return old
}

func oddNumber(rng *rand.Rand) float64 {
	return pick(rng, []float64{0, math.Copysign(0, -1), 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e-45, 1e-8, 65504, 3e38, rng.NormFloat64()})
}

// oddBytes changes the bytes of a content.
func oddBytes(rng *rand.Rand, b []byte) []byte {
	switch rng.IntN(5) {
	case 0:
		return b[:rng.IntN(len(b)+1)]
	case 1:
		return append(b, make([]byte, 1+rng.IntN(9))...)
	case 2: // the same number everywhere
		x := math.Float32bits(float32(oddNumber(rng)))
		for i := 0; i+4 <= len(b); i += 4 {
			binary.LittleEndian.PutUint32(b[i:], x)
		}
	case 3: // one number
		if len(b) >= 4 {
			binary.LittleEndian.PutUint32(b[rng.IntN(len(b)/4)*4:], math.Float32bits(float32(oddNumber(rng))))
		}
	default:
		for range len(b) {
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		}
	}
	return b
}

var variations = []func(*rand.Rand, *onnxpb.ModelProto){
	moveOut, moveIntoNode, insertNode, narrow, addReader, growTensor,
}

// moveOut moves the content of an initializer to external data.
func moveOut(rng *rand.Rand, m *onnxpb.ModelProto) {
	t := someTensor(rng, m)
	if t == nil || len(t.RawData) == 0 || len(t.RawData) > DataSize/2 {
		return
	}
	entry := func(key, value string) *onnxpb.StringStringEntryProto {
		return &onnxpb.StringStringEntryProto{Key: &key, Value: &value}
	}
	t.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
	t.ExternalData = append(t.ExternalData, entry("location", pick(rng, []string{"w.bin", "v.bin"})))
	if rng.IntN(2) == 0 {
		t.ExternalData = append(t.ExternalData, entry("offset", pick(rng, []string{"0", "4", "64"})))
	}
	if size := len(t.RawData); rng.IntN(2) == 0 {
		t.ExternalData = append(t.ExternalData, entry("length", strconv.Itoa(size)))
	}
	t.RawData = nil
}

// moveIntoNode makes an initializer a Constant.
func moveIntoNode(rng *rand.Rand, m *onnxpb.ModelProto) {
	t := someTensor(rng, m)
	if t == nil {
		return
	}
	g := m.Graph
	g.Initializer = slices.DeleteFunc(g.Initializer, func(i *onnxpb.TensorProto) bool { return i == t })
	g.Node = slices.Insert(g.Node, 0, ConstantNode(t.GetName(), t))
}

// insertNode puts a node before some input of a node.
func insertNode(rng *rand.Rand, m *onnxpb.ModelProto) {
	nodes := m.GetGraph().GetNode()
	if len(nodes) == 0 {
		return
	}
	i := rng.IntN(len(nodes))
	n := nodes[i]
	if len(n.Input) == 0 {
		return
	}
	at := rng.IntN(len(n.Input))
	between := Node(pick(rng, []string{"Identity", "Identity", "Transpose", "Cast", "Relu", "Neg", "Squeeze"}), n.Input[at]+"_between", n.Input[at])
	if between.GetOpType() == "Cast" {
		between.Attribute = append(between.Attribute, IntAttr("to", pick(rng, []int64{1, 10, 11, 16, 6})))
	}
	n.Input[at] = between.Output[0]
	m.Graph.Node = slices.Insert(nodes, i, between)
}

// narrow makes a tensor float16, bfloat16 or float64, with a size that fits.
func narrow(rng *rand.Rand, m *onnxpb.ModelProto) {
	t := someTensor(rng, m)
	if t == nil || dtype.DType(t.GetDataType()) != dtype.Float32 {
		return
	}
	to := pick(rng, []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float64})
	b := make([]byte, to.Bytes(int64(len(t.RawData)/4+len(t.FloatData))))
	for i := range b {
		b[i] = byte(rng.IntN(100))
	}
	t.DataType, t.RawData, t.FloatData = new(int32(to)), b, nil
}

// addReader adds a node that reads something that another node reads too.
func addReader(rng *rand.Rand, m *onnxpb.ModelProto) {
	nodes := m.GetGraph().GetNode()
	if len(nodes) == 0 {
		return
	}
	n := proto.Clone(pick(rng, nodes)).(*onnxpb.NodeProto)
	if rng.IntN(2) == 0 {
		n.OpType = new(pick(rng, []string{"Identity", "Mul", "Add", "MatMul", "Gather", "Transpose"}))
	}
	for i := range n.Output {
		n.Output[i] += "_again"
	}
	m.Graph.Node = append(nodes, n)
	if len(n.Output) > 0 && rng.IntN(3) == 0 {
		m.Graph.Output = append(m.Graph.Output, &onnxpb.ValueInfoProto{Name: &n.Output[0]})
	}
}

// growTensor makes a tensor several times as large.
func growTensor(rng *rand.Rand, m *onnxpb.ModelProto) {
	t := someTensor(rng, m)
	if t == nil || len(t.Dims) == 0 || len(t.RawData) > 1<<16 {
		return
	}
	times, at := 1+rng.IntN(5), rng.IntN(len(t.Dims))
	t.Dims[at] *= int64(times)
	t.RawData, t.FloatData = slices.Repeat(t.RawData, times), slices.Repeat(t.FloatData, times)
}

func someTensor(rng *rand.Rand, m *onnxpb.ModelProto) *onnxpb.TensorProto {
	if list := m.GetGraph().GetInitializer(); len(list) > 0 {
		return pick(rng, list)
	}
	return nil
}
