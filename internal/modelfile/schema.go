package modelfile

import (
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"onnxquant/internal/onnxpb"
)

// message describes a message type for a walk over the wire format.
type message struct {
	fields map[protowire.Number]*field
	tensor bool  // TensorProto: its contents are cut out
	size   int64 // bytes of memory of an empty decoded message
}

type field struct {
	name    string
	msg     *message       // type of a message field, else nil
	content *coding        // coding of tensor content, else nil
	list    bool           // a repeated number
	single  protowire.Type // wire type of a number of the list
}

// Field numbers of TensorProto.
const (
	fieldFloatData  protowire.Number = 4
	fieldInt32Data  protowire.Number = 5
	fieldInt64Data  protowire.Number = 7
	fieldRawData    protowire.Number = 9
	fieldDoubleData protowire.Number = 10
	fieldUint64Data protowire.Number = 11
	fieldLocation   protowire.Number = 14 // data_location
	fieldPayload    protowire.Number = 401216321
)

// maxDepth is protobuf's usual limit on nested messages. No runtime loads a
// deeper model.
const maxDepth = 100

var modelMessage = describe((&onnxpb.ModelProto{}).ProtoReflect().Descriptor(), map[protoreflect.FullName]*message{})

// describe describes a message type and the types of its fields. Types are recursive,
// so done has the descriptions already begun.
func describe(d protoreflect.MessageDescriptor, done map[protoreflect.FullName]*message) *message {
	if m := done[d.FullName()]; m != nil {
		return m
	}
	m := &message{
		fields: map[protowire.Number]*field{},
		tensor: d.FullName() == (&onnxpb.TensorProto{}).ProtoReflect().Descriptor().FullName(),
		size:   structSize(d) + 2*8 + 16, // a pointer in a slice that doubles; the wrapper of a oneof
	}
	if m.tensor {
		m.size += tensorCost
	}
	done[d.FullName()] = m
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		f := &field{name: string(fd.Name())}
		if fd.Message() != nil {
			f.msg = describe(fd.Message(), done)
		} else if fd.IsList() {
			f.single, f.list = numberTypes[fd.Kind()]
		}
		if m.tensor {
			f.content = codings[fd.Number()]
		}
		m.fields[fd.Number()] = f
	}
	return m
}

// numberTypes maps kinds of numbers to wire types.
var numberTypes = map[protoreflect.Kind]protowire.Type{
	protoreflect.Int32Kind:  protowire.VarintType,
	protoreflect.Int64Kind:  protowire.VarintType,
	protoreflect.Uint32Kind: protowire.VarintType,
	protoreflect.Uint64Kind: protowire.VarintType,
	protoreflect.FloatKind:  protowire.Fixed32Type,
	protoreflect.DoubleKind: protowire.Fixed64Type,
}

func structSize(d protoreflect.MessageDescriptor) int64 {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err) // onnxpb registers all its messages
	}
	return int64(reflect.TypeOf(t.Zero().Interface()).Elem().Size())
}
