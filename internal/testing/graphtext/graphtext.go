// Package graphtext writes small graphs of tests as text: before an operation and after it.
//
// A node is a line:
//
//	y, z = Split<axis=1, split=[3,5]>(x, "")
//
// An attribute is a float if it has a point, and a parameter of a function if it starts with @.
// A value is declared with its type and shape, both optional, and stored if it has a content:
//
//	x:float[2,3] w:float[3,4]=1,-0.5 n
//
// The numbers of a content repeat until the tensor is full.
package graphtext

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"onnxquant/internal/onnxpb"
)

var (
	nodeForm      = regexp.MustCompile(`^(.*?) ?= (?:([\w.]+)::)?(\w+)(?:<(.*)>)?\((.*)\)$`)
	attributeForm = regexp.MustCompile(`(\w+)=(\[[^\]]*\]|"[^"]*"|@\w+|[^,]+)`)
)

// Nodes reads nodes.
func Nodes(t testing.TB, text string) []*onnxpb.NodeProto {
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
		return &onnxpb.AttributeProto{Name: &name, RefAttrName: new(value[1:]), Type: kinds[name].Enum()}
	case value[0] == '"':
		return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_STRING.Enum(), S: []byte(strings.Trim(value, `"`))}
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
		return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INTS.Enum(), Ints: ints}
	case strings.ContainsAny(value, "."):
		return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_FLOAT.Enum(), F: new(parseFloat(t, value))}
	}
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INT.Enum(), I: new(parseInt(t, value))}
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

// Print writes nodes. Constants stand for themselves.
func Print(nodes []*onnxpb.NodeProto, constants []*onnxpb.TensorProto) string {
	contents := map[string]string{}
	for _, t := range constants {
		contents[t.GetName()] = printTensor(t)
	}
	var b strings.Builder
	for _, n := range nodes {
		inputs := make([]string, len(n.Input))
		for i, name := range n.Input {
			inputs[i] = name
			if c, ok := contents[name]; ok {
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
		for _, a := range n.Attribute {
			if a.G != nil {
				b.WriteString(indent(printGraph(a.G)))
			}
		}
	}
	return b.String()
}

func printGraph(g *onnxpb.GraphProto) string {
	return fmt.Sprintf("(%s) => (%s)\n%s", printValues(g.Input), printValues(g.Output), Print(g.Node, g.Initializer))
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

// value reads the declaration of a value, and its content if it has one.
func value(t testing.TB, text string) (*onnxpb.ValueInfoProto, *onnxpb.TensorProto) {
	t.Helper()
	text, content, stored := strings.Cut(text, "=")
	name, typ, _ := strings.Cut(text, ":")
	v := &onnxpb.ValueInfoProto{Name: &name}
	if typ == "" {
		return v, nil
	}
	elem, shape, ranked := strings.Cut(strings.TrimSuffix(typ, "]"), "[")
	tensor := &onnxpb.TypeProto_Tensor{ElemType: new(onnxpb.TensorProto_DataType_value[strings.ToUpper(elem)])}
	v.Type = &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: tensor}}
	var dims []int64
	if ranked {
		tensor.Shape = &onnxpb.TensorShapeProto{}
		for d := range strings.FieldsFuncSeq(shape, func(r rune) bool { return r == ',' }) {
			dim := parseInt(t, d)
			dims = append(dims, dim)
			tensor.Shape.Dim = append(tensor.Shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: dim}})
		}
	}
	if !stored {
		return v, nil
	}
	return v, &onnxpb.TensorProto{Name: &name, DataType: tensor.ElemType, Dims: dims, RawData: raw(t, tensor.GetElemType(), dims, strings.Split(content, ","))}
}

// raw is the content of a stored tensor.
func raw(t testing.TB, elem int32, dims []int64, numbers []string) (raw []byte) {
	t.Helper()
	n := 1
	for _, d := range dims {
		n *= int(d)
	}
	for i := range n {
		switch text := numbers[i%len(numbers)]; onnxpb.TensorProto_DataType(elem) {
		case onnxpb.TensorProto_FLOAT:
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(parseFloat(t, text)))
		case onnxpb.TensorProto_INT64:
			raw = binary.LittleEndian.AppendUint64(raw, uint64(parseInt(t, text)))
		default:
			t.Fatalf("no content of type %d", elem)
		}
	}
	return raw
}

// Model makes a model of an opset, of declared values, nodes and outputs.
func Model(t testing.TB, opset int64, values, nodes, outputs string) *onnxpb.ModelProto {
	t.Helper()
	g := &onnxpb.GraphProto{Node: Nodes(t, nodes)}
	m := &onnxpb.ModelProto{
		IrVersion:   new(int64(3)),
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: new(""), Version: &opset}},
		Graph:       g,
	}
	for _, text := range strings.Fields(values) {
		v, stored := value(t, text)
		if stored == nil {
			g.Input = append(g.Input, v)
		} else {
			g.Initializer = append(g.Initializer, stored)
			m.IrVersion = new(int64(4)) // the first in which a stored tensor need not be an input
		}
	}
	for _, text := range strings.Fields(outputs) {
		v, _ := value(t, text)
		g.Output = append(g.Output, v)
	}
	return m
}

// Tensors writes the types and shapes of tensors, a line each.
func Tensors(list []*onnxpb.TensorProto) string {
	var b strings.Builder
	for _, t := range list {
		elem := strings.ToLower(onnxpb.TensorProto_DataType(t.GetDataType()).String())
		fmt.Fprintf(&b, "%s:%s%s\n", t.GetName(), elem, strings.ReplaceAll(fmt.Sprint(t.Dims), " ", ","))
	}
	return b.String()
}

// Unindent drops the indentation that a raw string has in a table.
func Unindent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSpace(text)) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}
