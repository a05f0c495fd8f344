package modelfile

import "google.golang.org/protobuf/encoding/protowire"

// message says which fields of an ONNX message may hold tensors, or messages
// nested deeply, further down.
type message struct {
	name   string
	fields map[protowire.Number]child
	tensor bool // a TensorProto: its contents are cut out
}

type child struct {
	name string
	msg  *message
}

// Field numbers of TensorProto.
const (
	fieldFloatData  protowire.Number = 4
	fieldInt32Data  protowire.Number = 5
	fieldInt64Data  protowire.Number = 7
	fieldName       protowire.Number = 8
	fieldRawData    protowire.Number = 9
	fieldDoubleData protowire.Number = 10
	fieldUint64Data protowire.Number = 11
	fieldPayload    protowire.Number = 401216321
)

// maxDepth is protobuf's usual limit on nested messages. No runtime loads a
// model that passes it.
const maxDepth = 100

var modelMessage = func() *message {
	tensor := &message{name: "TensorProto", tensor: true}
	sparse := &message{name: "SparseTensorProto", fields: map[protowire.Number]child{
		1: {"values", tensor},
		2: {"indices", tensor},
	}}
	typ := &message{name: "TypeProto"} // holds no tensors, but may be nested without end
	typ.fields = map[protowire.Number]child{
		4: {"sequence_type", &message{name: "Sequence", fields: map[protowire.Number]child{1: {"elem_type", typ}}}},
		5: {"map_type", &message{name: "Map", fields: map[protowire.Number]child{2: {"value_type", typ}}}},
		9: {"optional_type", &message{name: "Optional", fields: map[protowire.Number]child{1: {"elem_type", typ}}}},
	}
	valueInfo := &message{name: "ValueInfoProto", fields: map[protowire.Number]child{2: {"type", typ}}}
	graph := &message{name: "GraphProto"}
	attribute := &message{name: "AttributeProto", fields: map[protowire.Number]child{
		5:  {"t", tensor},
		6:  {"g", graph},
		10: {"tensors", tensor},
		11: {"graphs", graph},
		14: {"tp", typ},
		15: {"type_protos", typ},
		22: {"sparse_tensor", sparse},
		23: {"sparse_tensors", sparse},
	}}
	node := &message{name: "NodeProto", fields: map[protowire.Number]child{
		5: {"attribute", attribute},
	}}
	graph.fields = map[protowire.Number]child{
		1:  {"node", node},
		5:  {"initializer", tensor},
		11: {"input", valueInfo},
		12: {"output", valueInfo},
		13: {"value_info", valueInfo},
		15: {"sparse_initializer", sparse},
	}
	training := &message{name: "TrainingInfoProto", fields: map[protowire.Number]child{
		1: {"initialization", graph},
		2: {"algorithm", graph},
	}}
	function := &message{name: "FunctionProto", fields: map[protowire.Number]child{
		7:  {"node", node},
		11: {"attribute_proto", attribute},
		12: {"value_info", valueInfo},
	}}
	return &message{name: "ModelProto", fields: map[protowire.Number]child{
		7:  {"graph", graph},
		20: {"training_info", training},
		25: {"functions", function},
	}}
}()
