package write

import (
	"strings"
	"testing"

	"onnxquant/internal/onnxpb"
)

// one is a model of one node.
func one(opset int64, n *onnxpb.NodeProto) *onnxpb.ModelProto {
	return &onnxpb.ModelProto{
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: new(""), Version: &opset}, {Domain: new("com.microsoft"), Version: new(int64(1))}},
		Graph:       &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{n}},
	}
}

func node(domain, op string, inputs int, attributes ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	return &onnxpb.NodeProto{Domain: &domain, OpType: &op, Input: make([]string, inputs), Attribute: attributes}
}

func integer(name string) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INT.Enum(), I: new(int64(1))}
}

func TestCheckNodes(t *testing.T) {
	neg := one(13, node("", "Neg", 1))
	for name, test := range map[string]struct {
		from, to *onnxpb.ModelProto
		want     string // part of the error; "": none
	}{
		"right":                     {neg, one(6, node("", "Cast", 1, integer("to"))), ""},
		"a type":                    {neg, one(5, node("", "Cast", 1, integer("to"))), "wants attribute to to be STRING, not INT"},
		"a type of the input":       {one(5, node("", "Cast", 1, integer("to"))), one(5, node("", "Cast", 1, integer("to"))), ""},
		"a type, after a raise":     {one(5, node("", "Cast", 1, integer("to"))), one(13, node("", "Cast", 1)), "wants attribute to"},
		"a name":                    {neg, one(13, node("", "Squeeze", 2, integer("axes"))), "has no attribute"},
		"a name of the input":       {one(9, node("", "Conv", 2, integer("x"))), one(21, node("", "Conv", 2, integer("x"))), ""},
		"too many inputs":           {neg, one(13, node("", "Neg", 2)), "has fewer than 2 inputs"},
		"missing, of com.microsoft": {neg, one(13, node("com.microsoft", "MatMulNBits", 3, integer("K"), integer("N"))), "wants attribute block_size"},
		"an unknown domain":         {neg, one(13, node("custom", "Neg", 7, integer("x"))), ""},
	} {
		err := (&Output{proto: test.to}).CheckNodes(test.from)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// A function of the model may have the name of an operator.
func TestCheckNodesOfFunctions(t *testing.T) {
	m := one(13, node("", "Neg", 3, integer("x")))
	m.Functions = []*onnxpb.FunctionProto{{Domain: new(""), Name: new("Neg")}}
	if err := (&Output{proto: m}).CheckNodes(one(13, node("", "Neg", 1))); err != nil {
		t.Error(err)
	}
	body := one(13, node("", "Neg", 1))
	body.Functions = []*onnxpb.FunctionProto{{Name: new("f"), OpsetImport: one(5, nil).OpsetImport, Node: []*onnxpb.NodeProto{node("", "Cast", 1, integer("to"))}}}
	if err := (&Output{proto: body}).CheckNodes(one(13, node("", "Neg", 1))); err == nil {
		t.Error("a Cast of a function, whose opset is 5, has an INT")
	}
}
