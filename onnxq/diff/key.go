package diff

import (
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

// key identifies a message of a list.
type key struct {
	name string
	n    int // number among equal names, from 0
}

func (k key) text() string {
	text := ""
	if k.name != "" {
		text = " " + msg.Quote(k.name)
	}
	if k.n > 0 {
		text += " (" + strconv.Itoa(k.n+1) + ")"
	}
	return text
}

// keys returns the key of each message of a list.
func keys(l protoreflect.List) []key {
	seen := map[string]int{}
	list := make([]key, l.Len())
	for i := range list {
		name := keyOf(l.Get(i).Message().Interface())
		list[i] = key{name, seen[name]}
		seen[name]++
	}
	return list
}

// keyOf returns the name by which a message is matched with one of another model.
func keyOf(m proto.Message) string {
	switch m := m.(type) {
	case *onnxpb.NodeProto:
		return graph.FirstOutput(m)
	case *onnxpb.OperatorSetIdProto:
		if graph.IsStandard(m.GetDomain()) {
			return "ai.onnx"
		}
		return m.GetDomain()
	case *onnxpb.FunctionProto:
		return m.GetDomain() + "." + m.GetName() + m.GetOverload()
	case *onnxpb.SparseTensorProto:
		return m.GetValues().GetName()
	case *onnxpb.TensorAnnotation:
		return m.GetTensorName()
	case interface{ GetKey() string }:
		return m.GetKey()
	case interface{ GetName() string }:
		return m.GetName()
	}
	return ""
}
