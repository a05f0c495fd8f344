package opset

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// Graphs in tests are written one node a line:
//
//	y, z = Split<axis=1, split=[3,5]>(x, "")
//
// A value is a float if it has a point, a parameter of a function if it starts
// with @. When printed, constants that raising added stand for themselves.

var (
	nodeForm      = regexp.MustCompile(`^(.*?) ?= (?:([\w.]+)::)?(\w+)(?:<(.*)>)?\((.*)\)$`)
	attributeForm = regexp.MustCompile(`(\w+)=(\[[^\]]*\]|"[^"]*"|@\w+|[^,]+)`)
)

func parseNodes(t testing.TB, text string) []*onnxpb.NodeProto {
	t.Helper()
	var nodes []*onnxpb.NodeProto
	for line := range strings.Lines(strings.TrimSpace(text)) {
		m := nodeForm.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			t.Fatalf("not a node: %s", line)
		}
		n := &onnxpb.NodeProto{Output: parseNames(m[1]), OpType: &m[3], Input: parseNames(m[5])}
		if m[2] != "" {
			n.Domain = &m[2]
		}
		for _, a := range attributeForm.FindAllStringSubmatch(m[4], -1) {
			n.Attribute = append(n.Attribute, parseAttribute(t, a[1], a[2]))
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func parseNames(text string) []string {
	if text == "" {
		return nil
	}
	names := strings.Split(text, ", ")
	for i, name := range names {
		names[i] = strings.Trim(name, `"`)
	}
	return names
}

func parseAttribute(t testing.TB, name, value string) *onnxpb.AttributeProto {
	t.Helper()
	switch {
	case value[0] == '@':
		kinds := map[string]onnxpb.AttributeProto_AttributeType{
			"axes": onnxpb.AttributeProto_INTS, "axis": onnxpb.AttributeProto_INT, "k": onnxpb.AttributeProto_INT,
			"min": onnxpb.AttributeProto_FLOAT, "mode": onnxpb.AttributeProto_STRING, "scales": onnxpb.AttributeProto_FLOATS,
		}
		return &onnxpb.AttributeProto{Name: &name, RefAttrName: proto.String(value[1:]), Type: kinds[name].Enum()}
	case value[0] == '"':
		return stringAttribute(name, strings.Trim(value, `"`))
	case value[0] == '[':
		var ints []int64
		var floats []float32
		for v := range strings.SplitSeq(strings.Trim(value, "[]"), ",") {
			if strings.Contains(v, ".") {
				floats = append(floats, parseFloat(t, v))
			} else if v != "" {
				ints = append(ints, parseInt(t, v))
			}
		}
		if floats != nil {
			return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_FLOATS.Enum(), Floats: floats}
		}
		return intsAttribute(name, ints...)
	case strings.ContainsAny(value, "."):
		return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_FLOAT.Enum(), F: proto.Float32(parseFloat(t, value))}
	}
	return intAttribute(name, parseInt(t, value))
}

func parseInt(t testing.TB, s string) int64 {
	t.Helper()
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func parseFloat(t testing.TB, s string) float32 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 32)
	if err != nil {
		t.Fatal(err)
	}
	return float32(v)
}

// printNodes is the inverse of parseNodes.
func printNodes(nodes []*onnxpb.NodeProto, added []*onnxpb.TensorProto) string {
	constants := map[string]string{}
	for _, t := range added {
		constants[t.GetName()] = printTensor(t)
	}
	var b strings.Builder
	for _, n := range nodes {
		inputs := make([]string, len(n.Input))
		for i, name := range n.Input {
			inputs[i] = name
			if c, ok := constants[name]; ok {
				inputs[i] = c
			} else if name == "" {
				inputs[i] = `""`
			}
		}
		var attributes []string
		for _, a := range n.Attribute {
			attributes = append(attributes, a.GetName()+"="+printAttribute(a))
		}
		op := n.GetOpType()
		if len(attributes) > 0 {
			op += "<" + strings.Join(attributes, ", ") + ">"
		}
		fmt.Fprintf(&b, "%s = %s(%s)\n", strings.Join(n.Output, ", "), op, strings.Join(inputs, ", "))
		for _, g := range subgraphs(n) {
			b.WriteString(indent(printGraph(g)))
		}
	}
	return b.String()
}

func printGraph(g *onnxpb.GraphProto) string {
	return fmt.Sprintf("(%s) => (%s)\n%s", printValues(g.Input), printValues(g.Output), printNodes(g.Node, g.Initializer))
}

func printValues(values []*onnxpb.ValueInfoProto) string {
	var names []string
	for _, v := range values {
		names = append(names, v.GetName())
	}
	return strings.Join(names, ", ")
}

func printAttribute(a *onnxpb.AttributeProto) string {
	if a.RefAttrName != nil {
		return "@" + a.GetRefAttrName()
	}
	switch a.GetType() {
	case onnxpb.AttributeProto_INT:
		return fmt.Sprint(a.GetI())
	case onnxpb.AttributeProto_FLOAT:
		return printFloat(a.GetF())
	case onnxpb.AttributeProto_STRING:
		return strconv.Quote(string(a.S))
	case onnxpb.AttributeProto_INTS:
		return strings.ReplaceAll(fmt.Sprint(a.Ints), " ", ",")
	case onnxpb.AttributeProto_TENSOR:
		return printTensor(a.T)
	case onnxpb.AttributeProto_GRAPH:
		return "{}"
	}
	return "?"
}

// printTensor prints a vector as [1 2], a scalar as 1, with the element type
// where it is neither int64 nor float32.
func printTensor(t *onnxpb.TensorProto) string {
	var values []string
	suffix := ""
	for raw := t.RawData; len(raw) > 0; {
		switch onnxpb.TensorProto_DataType(t.GetDataType()) {
		case onnxpb.TensorProto_INT64:
			values, raw = append(values, fmt.Sprint(int64(binary.LittleEndian.Uint64(raw)))), raw[8:]
		case onnxpb.TensorProto_FLOAT:
			values, raw = append(values, printFloat(math.Float32frombits(binary.LittleEndian.Uint32(raw)))), raw[4:]
		case onnxpb.TensorProto_DOUBLE:
			values, raw = append(values, fmt.Sprint(math.Float64frombits(binary.LittleEndian.Uint64(raw)))), raw[8:]
			suffix = ":double"
		case onnxpb.TensorProto_FLOAT16:
			values, raw = append(values, fmt.Sprintf("%#04x", binary.LittleEndian.Uint16(raw))), raw[2:]
			suffix = ":float16"
		default:
			return "?"
		}
	}
	if len(t.Dims) == 0 {
		return strings.Join(values, " ") + suffix
	}
	return "[" + strings.Join(values, " ") + "]" + suffix
}

func printFloat(v float32) string {
	s := strconv.FormatFloat(float64(v), 'g', -1, 32)
	if strings.ContainsAny(s, ".eIN") {
		return s
	}
	return s + ".0"
}

func indent(text string) string {
	return "\t" + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n\t") + "\n"
}

// A value declares an input of a test's graph as "x:float[2,3]", the shape or
// all after the name being optional.
func parseValue(t testing.TB, text string) *onnxpb.ValueInfoProto {
	t.Helper()
	name, typ, _ := strings.Cut(text, ":")
	v := &onnxpb.ValueInfoProto{Name: &name}
	if typ == "" {
		return v
	}
	elem, shape, ranked := strings.Cut(strings.TrimSuffix(typ, "]"), "[")
	v.Type = tensorType(onnxpb.TensorProto_DataType(onnxpb.TensorProto_DataType_value[strings.ToUpper(elem)]))
	if ranked {
		s := &onnxpb.TensorShapeProto{}
		for d := range strings.FieldsFuncSeq(shape, func(r rune) bool { return r == ',' }) {
			dim := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: parseInt(t, d)}}
			s.Dim = append(s.Dim, dim)
		}
		v.GetType().GetTensorType().Shape = s
	}
	return v
}

// parseModel makes a model of nodes, declared inputs and output names.
func parseModel(t testing.TB, opset int64, inputs, nodes, outputs string) *onnxpb.ModelProto {
	t.Helper()
	g := &onnxpb.GraphProto{Node: parseNodes(t, nodes)}
	for _, s := range strings.Fields(inputs) {
		g.Input = append(g.Input, parseValue(t, s))
	}
	for _, s := range strings.Fields(outputs) {
		g.Output = append(g.Output, parseValue(t, s))
	}
	return &onnxpb.ModelProto{
		IrVersion:   proto.Int64(3),
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: proto.String(""), Version: &opset}},
		Graph:       g,
	}
}

// freshNames returns a namer that numbers its names.
func freshNames() func(string) string {
	n := 0
	return func(hint string) string {
		n++
		return fmt.Sprint(hint, "~", n)
	}
}
