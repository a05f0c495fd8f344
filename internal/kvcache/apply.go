package kvcache

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

// Key is the key of the record in metadata_props: by input, the type of the floats, and the type at the operator.
const Key = "onnxquant.kv_cache"

// Inputs of GroupQueryAttention with scales of keys and values.
const keyScale, valueScale = 12, 13

// The first opsets with a QuantizeLinear, and with one that has an axis.
const firstQuantize, firstPerAxis = 10, 13

// Apply makes the caches of a model int8. scales has their scales by input: one, one per head, or one per channel of each
// head. It must be called last: it replaces nodes. It returns by how many bytes the record grows the model.
func Apply(c *graph.Copy, scales map[string][]float32) (grown int64, err error) {
	if len(scales) == 0 {
		return 0, nil
	}
	caches, err := Find(c.Proto)
	if err != nil {
		return 0, err
	}
	for _, name := range slices.Sorted(maps.Keys(scales)) {
		if !slices.ContainsFunc(caches, func(c Cache) bool { return c.Input == name }) {
			return 0, fmt.Errorf("%w: %s has scales, which is no cache; the model has %s", ErrCache, msg.Quote(name), msg.ListNames(inputsOf(caches)))
		}
	}
	e := &editor{scene: newScene(c.Proto.Graph), names: c.Names, dropped: map[int]bool{}, gone: map[string]bool{}}
	record := map[string][2]string{}
	opset := graph.Opset(c.Proto)
	for _, cache := range caches {
		s, err := cache.takes(scales[cache.Input])
		switch {
		case err != nil:
			return 0, fmt.Errorf("%w: input %s: %w", ErrCache, msg.Quote(cache.Input), err)
		case cache.Operator != groupQuery && opset < firstQuantize, cache.Operator != groupQuery && len(s) > 1 && opset < firstPerAxis:
			return 0, fmt.Errorf("%w: opset %d lacks the QuantizeLinear that a cache needs; raise the model to %d with onnx.version_converter", ErrCache, opset, firstPerAxis)
		case cache.Operator == groupQuery:
			e.native(cache, s)
		default:
			e.around(cache, s)
		}
		record[cache.Input] = [2]string{cache.was.String(), cache.inner.String()}
	}
	e.retype(caches)
	e.finish()
	text, err := json.Marshal(record)
	if err != nil {
		return 0, err
	}
	before := proto.Size(&onnxpb.ModelProto{MetadataProps: c.Proto.MetadataProps})
	c.Proto.MetadataProps = append(slices.Clone(c.Proto.MetadataProps), &onnxpb.StringStringEntryProto{Key: new(Key), Value: new(string(text))})
	return int64(proto.Size(&onnxpb.ModelProto{MetadataProps: c.Proto.MetadataProps}) - before), nil
}

// inputsOf lists the inputs of caches.
func inputsOf(caches []Cache) (all []string) {
	for _, c := range caches {
		all = append(all, c.Input)
	}
	return all
}

// takes checks scales of a cache. It returns them as the operator needs them.
func (c *Cache) takes(scales []float32) ([]float32, error) {
	n := int64(len(scales))
	perHead, perChannel := c.Heads > 0 && n == c.Heads, c.Heads > 0 && n == c.Heads*c.size
	if c.Heads > 0 && c.size == 0 { // Heads scales may be of either kind
		perChannel = n > c.Heads && n%c.Heads == 0
	}
	switch {
	case n == 0:
		return nil, errors.New("it has no scales")
	case n != 1 && !perHead && !perChannel:
		return nil, fmt.Errorf("%d scales for %d heads; want one, one for each head, or one for each channel of each head", n, c.Heads)
	}
	for _, s := range scales {
		if !(s > 0 && s <= math.MaxFloat32) {
			return nil, fmt.Errorf("the scale %g; want a finite number above 0", s)
		}
	}
	if n == 1 || perChannel || c.Operator != groupQuery {
		return scales, nil
	}
	if c.size == 0 {
		return nil, errors.New("the model leaves the size of heads open, so GroupQueryAttention cannot have a scale for each head; give one for each channel")
	}
	return repeated(scales, c.size), nil
}

// editor changes a main graph.
type editor struct {
	*scene
	names       *graph.Names
	front, back []*onnxpb.NodeProto // new nodes
	dropped     map[int]bool        // nodes to remove
	gone        map[string]bool     // values whose declaration is removed
}

// own returns a node that may be changed. Nodes with bodies are copies already, whose tensors are known by their address.
func (e *editor) own(i int) *onnxpb.NodeProto {
	if slices.ContainsFunc(e.g.Node[i].Attribute, func(a *onnxpb.AttributeProto) bool { return len(graph.Subgraphs(a)) > 0 }) {
		return e.g.Node[i]
	}
	e.g.Node[i] = proto.CloneOf(e.g.Node[i])
	return e.g.Node[i]
}

// drop removes a node.
func (e *editor) drop(nodes ...int) {
	for _, i := range nodes {
		e.dropped[i] = true
		for _, name := range e.g.Node[i].Output {
			e.gone[name] = !e.outputs[name]
		}
	}
}

// finish puts the nodes in order.
func (e *editor) finish() {
	nodes := slices.Clone(e.front)
	for i, n := range e.g.Node {
		if !e.dropped[i] {
			nodes = append(nodes, n)
		}
	}
	e.g.Node = append(nodes, e.back...)
	e.g.ValueInfo = slices.DeleteFunc(e.g.ValueInfo, func(v *onnxpb.ValueInfoProto) bool { return e.gone[v.GetName()] })
}

// rename makes the readers of a value in the main graph read another one.
func (e *editor) rename(name, to string) {
	for _, u := range e.readers[name] {
		if !e.dropped[u.node] {
			e.own(u.node).Input[u.input] = to
		}
	}
}

// floats adds a constant.
func (e *editor) floats(hint string, dims []int64, x ...float32) string {
	var raw []byte
	for _, v := range x {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return e.constant(hint, dtype.Float32, dims, raw)
}

func (e *editor) constant(hint string, typ dtype.DType, dims []int64, raw []byte) string {
	t := &onnxpb.TensorProto{Name: new(e.names.Fresh(hint)), DataType: new(int32(typ)), Dims: dims, RawData: raw}
	e.g.Initializer = append(e.g.Initializer, t)
	return t.GetName()
}

// native has a GroupQueryAttention read and write codes.
func (e *editor) native(c Cache, scales []float32) {
	e.drop(c.before...)
	e.drop(c.behind...)
	for _, i := range c.before { // only shapes are read of these values
		e.rename(e.g.Node[i].Output[0], c.Input)
	}
	for _, i := range append([]int{c.node}, c.behind...) {
		if out := e.g.Node[i].Output; i == c.node {
			e.rename(out[c.out], c.Output)
		} else {
			e.rename(out[0], c.Output)
		}
	}
	n := e.own(c.node)
	at, side := keyScale, "k"
	if c.in == 4 {
		at, side = valueScale, "v"
	}
	for len(n.Input) <= at {
		n.Input = append(n.Input, "")
	}
	e.gone[n.Output[c.out]] = !e.outputs[n.Output[c.out]]
	n.Input[c.in], n.Output[c.out] = c.Input, c.Output
	n.Input[at] = e.floats(c.Input+"_scale", []int64{int64(len(scales))}, scales...)
	kind := "PER_TENSOR"
	if len(scales) > 1 {
		kind = "PER_CHANNEL"
	}
	set(n, &onnxpb.AttributeProto{Name: new(side + "_quant_type"), Type: onnxpb.AttributeProto_STRING.Enum(), S: []byte(kind)})
	set(n, &onnxpb.AttributeProto{Name: new("kv_cache_bit_width"), Type: onnxpb.AttributeProto_INT.Enum(), I: new(int64(8))})
}

// set sets an attribute.
func set(n *onnxpb.NodeProto, a *onnxpb.AttributeProto) {
	n.Attribute = slices.DeleteFunc(n.Attribute, func(b *onnxpb.AttributeProto) bool { return b.GetName() == a.GetName() })
	n.Attribute = append(n.Attribute, a)
}

// around decodes the cache before an operator, and encodes what it returns.
func (e *editor) around(c Cache, scales []float32) {
	in, out := c.Input, c.Output
	channels := int64(len(scales)) > max(c.Heads, 1)
	var dims []int64
	var attrs []*onnxpb.AttributeProto
	zeros := 1
	if len(scales) > 1 && !channels {
		dims, zeros = []int64{c.Heads}, len(scales)
		attrs = []*onnxpb.AttributeProto{{Name: new("axis"), Type: onnxpb.AttributeProto_INT.Enum(), I: new(int64(1))}}
	}
	scale, factor := "", ""
	if channels { // QuantizeLinear knows one axis of scales: a Mul and a Div have two
		factor = e.floats(in+"_scale", []int64{c.Heads, 1, int64(len(scales)) / c.Heads}, scales...)
		scale = e.floats(in+"_unit", nil, 1)
	} else {
		scale = e.floats(in+"_scale", dims, scales...)
	}
	zero := e.constant(in+"_zero_point", dtype.Int8, dims, make([]byte, zeros))

	// The output first: its maker gets another name for the floats.
	source := e.names.Fresh(out + "_QuantizeLinear_Input")
	maker := e.own(e.makers[out])
	maker.Output[slices.Index(maker.Output, out)] = source
	e.rename(out, source)
	e.gone[out] = true
	if e.returnedType(out) != dtype.Float32 {
		source = e.after("Cast", out, []string{source}, castTo(dtype.Float32)...)
	}
	if channels {
		source = e.after("Div", out, []string{source, factor})
	}
	e.back = append(e.back, node("QuantizeLinear", out, []string{source, scale, zero}, attrs...))

	value := e.before("DequantizeLinear", in, []string{in, scale, zero}, attrs...)
	if channels {
		value = e.before("Mul", in, []string{value, factor})
	}
	if c.was != dtype.Float32 {
		value = e.before("Cast", in, []string{value}, castTo(c.was)...)
	}
	e.rename(in, value)
	if c.merged {
		renameInside(e.g.Node[c.node], in, value)
	}
}

// returnedType is the type of an output of the model.
func (e *editor) returnedType(name string) dtype.DType {
	i := slices.IndexFunc(e.g.Output, func(v *onnxpb.ValueInfoProto) bool { return v.GetName() == name })
	return typeOf(e.g.Output[i])
}

func castTo(typ dtype.DType) []*onnxpb.AttributeProto {
	return []*onnxpb.AttributeProto{{Name: new("to"), Type: onnxpb.AttributeProto_INT.Enum(), I: new(int64(typ))}}
}

func node(op, output string, inputs []string, attrs ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	return &onnxpb.NodeProto{OpType: &op, Name: new(output + "_" + op), Input: inputs, Output: []string{output}, Attribute: attrs}
}

// before adds a node before all others, and returns its output.
func (e *editor) before(op, hint string, inputs []string, attrs ...*onnxpb.AttributeProto) string {
	n := node(op, e.names.Fresh(hint+"_"+op+"_Output"), inputs, attrs...)
	e.front = append(e.front, n)
	return n.Output[0]
}

// after adds a node behind all others, and returns its output.
func (e *editor) after(op, hint string, inputs []string, attrs ...*onnxpb.AttributeProto) string {
	n := node(op, e.names.Fresh(hint+"_"+op+"_Output"), inputs, attrs...)
	e.back = append(e.back, n)
	return n.Output[0]
}

// retype declares the inputs and outputs as int8.
func (e *editor) retype(all []Cache) {
	for _, list := range [][]*onnxpb.ValueInfoProto{e.g.Input, e.g.Output} {
		for i, v := range list {
			if slices.ContainsFunc(all, func(c Cache) bool { return c.Input == v.GetName() || c.Output == v.GetName() }) {
				list[i] = declared(v, dtype.Int8)
			}
		}
	}
}

// declared returns the declaration of a tensor with another type.
func declared(v *onnxpb.ValueInfoProto, typ dtype.DType) *onnxpb.ValueInfoProto {
	v = proto.CloneOf(v)
	if t := v.GetType().GetTensorType(); t != nil {
		t.ElemType = new(int32(typ))
	}
	return v
}
