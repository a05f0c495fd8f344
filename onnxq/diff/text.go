package diff

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

func join(outer, inner string) string {
	if outer == "" {
		return inner
	}
	return outer + ": " + inner
}

// summary describes an added or removed message in a few words.
func summary(m protoreflect.Message) string {
	switch m := m.Interface().(type) {
	case *onnxpb.TensorProto:
		return tensorText(m)
	case *onnxpb.TypeProto:
		return graph.TypeText(m)
	case *onnxpb.ValueInfoProto:
		return graph.TypeText(m.Type)
	case *onnxpb.NodeProto:
		return fmt.Sprintf("%s of %s", msg.Clean(m.GetOpType()), msg.Names(m.Input))
	case *onnxpb.AttributeProto:
		return attributeText(m)
	case *onnxpb.StringStringEntryProto:
		return msg.Quote(m.GetValue())
	case *onnxpb.OperatorSetIdProto:
		return strconv.FormatInt(m.GetVersion(), 10)
	case *onnxpb.GraphProto:
		return fmt.Sprintf("%d nodes", len(m.Node))
	case *onnxpb.FunctionProto:
		return fmt.Sprintf("%d nodes", len(m.Node))
	}
	return sizeText(proto.Size(m.Interface()))
}

func attributeText(a *onnxpb.AttributeProto) string {
	switch a.GetType() {
	case onnxpb.AttributeProto_TENSOR:
		return tensorText(a.GetT())
	case onnxpb.AttributeProto_GRAPH:
		return summary(a.GetG().ProtoReflect())
	}
	set := ""
	a.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Name() != "name" && f.Name() != "type" && f.Name() != "doc_string" && f.Message() == nil {
			set = valueText(f, v)
		}
		return true
	})
	return set
}

// tensorText formats the type and shape of a tensor.
func tensorText(t *onnxpb.TensorProto) string {
	text := dtype.DType(t.GetDataType()).String()
	return text + " " + msg.Clip(fmt.Sprint(t.GetDims()))
}

func valueText(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	one := func(v protoreflect.Value) string {
		switch f.Kind() {
		case protoreflect.StringKind:
			return msg.Quote(v.String())
		case protoreflect.BytesKind:
			return msg.Quote(string(v.Bytes()))
		case protoreflect.EnumKind:
			if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
				return string(e.Name())
			}
		}
		return fmt.Sprint(v.Interface())
	}
	if !f.IsList() {
		return one(v)
	}
	const most = 64
	var all []string
	for i := range min(v.List().Len(), most) {
		all = append(all, one(v.List().Get(i)))
	}
	return msg.Clip("[" + strings.Join(all, " ") + "]")
}

func sizeText(n int) string { return strconv.Itoa(n) + " bytes" }
