package transformer_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/internal/transformer"
)

const layers = 3

// decoder builds decoders whose names say nothing, and notes the roles of their weights.
type decoder struct {
	tensors modeltest.Tensors
	nodes   modeltest.Nodes
	want    map[string]transformer.Weight
}

// node adds a node of some inputs and returns its output.
func (d *decoder) node(op, inputs string, attrs ...*onnxpb.AttributeProto) string {
	name := fmt.Sprintf("v%d", len(d.nodes))
	d.nodes = append(d.nodes, modeltest.Node(op, name, inputs, attrs...))
	return name
}

func (d *decoder) weight() string {
	name := fmt.Sprintf("onnx::MatMul_%d", len(d.tensors))
	d.tensors = append(d.tensors, modeltest.Floats(name, 8, 8))
	return name
}

// product multiplies by a weight that has a role, or none.
func (d *decoder) product(op, x string, of transformer.Role, layer int) string {
	w := d.weight()
	if of != "" {
		d.want[w] = transformer.Weight{Role: of, Layer: layer, Layers: layers}
	}
	return d.node(op, x+" "+w)
}

func (d *decoder) norm(x string) string { return d.node("LayerNormalization", x+" scale") }

// oldNorm is a normalization in single operators.
func (d *decoder) oldNorm(x string) string {
	mean := d.node("ReduceMean", x)
	centered := d.node("Sub", x+" "+mean)
	square := d.node("Mul", centered+" "+centered)
	return d.node("Div", centered+" "+d.node("Sqrt", d.node("ReduceMean", square)))
}

// families are decoders as exporters write them.
var families = map[string]func(d *decoder, x string, layer int) string{
	"grouped queries and a gate": func(d *decoder, x string, i int) string {
		y := d.norm(x)
		q, k, v := d.product("MatMul", y, "", i), d.product("MatMul", y, "", i), d.product("MatMul", y, transformer.Value, i)
		a := d.node("com.microsoft.GroupQueryAttention", fmt.Sprintf("%s %s %s", q, k, d.node("Add", v+" bias")))
		x = d.node("Add", x+" "+d.product("MatMul", a, "", i))
		y = d.norm(x)
		gate, up := d.product("MatMul", y, "", i), d.product("MatMul", y, "", i)
		gate = d.node("Mul", gate+" "+d.node("Sigmoid", gate))
		return d.node("Add", x+" "+d.product("MatMul", d.node("Mul", gate+" "+up), transformer.Down, i))
	},
	"packed products": func(d *decoder, x string, i int) string {
		a := d.node("com.microsoft.GroupQueryAttention", d.product("MatMul", d.norm(x), transformer.Value, i))
		x = d.node("Add", x+" "+d.product("MatMul", a, "", i))
		both := d.product("MatMul", d.norm(x), "", i)
		gate, up := d.node("Slice", both+" i"), d.node("Slice", both+" i")
		gate = d.node("Mul", gate+" "+d.node("Sigmoid", gate))
		return d.node("Add", x+" "+d.product("MatMul", d.node("Mul", gate+" "+up), transformer.Down, i))
	},
	"single operators": func(d *decoder, x string, i int) string {
		qkv := d.product("Gemm", d.node("Reshape", d.oldNorm(x)+" i"), transformer.Value, i)
		q, k, v := d.node("Slice", qkv+" i"), d.node("Slice", qkv+" i"), d.node("Slice", qkv+" i")
		v = d.node("Concat", "past "+d.node("Transpose", d.node("Reshape", v+" i")), modeltest.IntAttr("axis", 2))
		a := d.node("MatMul", d.node("Softmax", d.node("Add", d.node("MatMul", q+" "+d.node("Transpose", k))+" bias"))+" "+v)
		x = d.node("Add", x+" "+d.node("Add", d.product("MatMul", d.node("Reshape", a+" i"), "", i)+" bias"))
		y := d.node("Add", d.product("MatMul", d.oldNorm(x), "", i)+" bias")
		y = d.node("Mul", y+" "+d.node("Add", d.node("Erf", y)+" bias"))
		return d.node("Add", x+" "+d.product("MatMul", y, transformer.Down, i))
	},
	"attention beside the feed-forward part": func(d *decoder, x string, i int) string {
		y := d.norm(x)
		qkv := d.product("MatMul", y, transformer.Value, i)
		a := d.product("MatMul", d.node("com.microsoft.MultiHeadAttention", qkv), "", i)
		m := d.product("MatMul", d.node("Gelu", d.product("MatMul", y, "", i)), transformer.Down, i)
		return d.node("Add", d.node("Add", a+" "+m)+" "+x)
	},
	"no normalization": func(d *decoder, x string, i int) string {
		v := d.product("MatMul", x, transformer.Value, i)
		a := d.node("com.microsoft.MultiHeadAttention", fmt.Sprintf("%s %s %s", x, x, v))
		x = d.node("Add", x+" "+d.product("MatMul", a, "", i))
		return d.node("Add", x+" "+d.product("MatMul", d.node("Relu", d.product("MatMul", x, "", i)), transformer.Down, i))
	},
}

// heads give the logits.
var heads = map[string]func(d *decoder, x, table string){
	"product": func(d *decoder, x, _ string) {
		w := d.weight()
		d.want[w] = transformer.Weight{Role: transformer.Head}
		d.nodes = append(d.nodes, modeltest.Node("MatMul", "y", x+" "+w))
	},
	"table, limited": func(d *decoder, x, table string) {
		d.want[table] = transformer.Weight{Role: transformer.Head}
		logits := d.node("MatMul", d.node("Gather", x+" i")+" "+d.node("Transpose", table))
		d.nodes = append(d.nodes, modeltest.Node("Mul", "y", d.node("Tanh", d.node("Div", logits+" bias"))+" bias"))
	},
	"none": func(d *decoder, x, _ string) { d.nodes = append(d.nodes, modeltest.Node("Identity", "y", x)) },
}

// Roles follow from the structure, whatever the names are.
func TestOf(t *testing.T) {
	for family, layer := range families {
		for kind, head := range heads {
			t.Run(family+", "+kind, func(t *testing.T) {
				d := &decoder{want: map[string]transformer.Weight{}, tensors: modeltest.Tensors{
					modeltest.Floats("scale", 8), modeltest.Floats("bias", 8), modeltest.Floats("past", 1, 1, 1, 8),
				}}
				table := d.weight()
				x := d.node("Gather", table+" i")
				for i := range layers {
					x = layer(d, x, i)
				}
				head(d, d.norm(x), table)
				m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(d.tensors, d.nodes)))
				if got := transformer.Of(m.Graph()); !maps.Equal(got, d.want) {
					t.Errorf("roles %v, want %v", got, d.want)
				}
			})
		}
	}
}

// A merged decoder computes with a cache in one branch of an If and without in the other, with the
// same weights. Its first product is before it, and the logits get their limit behind it.
func TestOfBranches(t *testing.T) {
	for family, layer := range families {
		t.Run(family, func(t *testing.T) {
			tensors := modeltest.Tensors{modeltest.Floats("scale", 8), modeltest.Floats("bias", 8), modeltest.Floats("past", 1, 1, 1, 8)}
			outer := &decoder{want: map[string]transformer.Weight{}, tensors: tensors}
			x := outer.node("Gather", outer.weight()+" i")
			branch := func(number int) (*decoder, modeltest.Nodes) {
				d := &decoder{want: map[string]transformer.Weight{}, tensors: outer.tensors, nodes: slices.Clone(outer.nodes)}
				y := x
				for i := range layers {
					y = layer(d, y, i)
				}
				d.node("MatMul", d.norm(y)+" "+d.weight())
				d.want[fmt.Sprintf("onnx::MatMul_%d", len(d.tensors)-1)] = transformer.Weight{Role: transformer.Head}
				nodes := d.nodes[len(outer.nodes):]
				for _, n := range nodes { // names of values are those of one branch
					n.Output[0] = fmt.Sprintf("b%d%s", number, n.Output[0])
					for i, in := range n.Input {
						if strings.HasPrefix(in, "v") && in != x {
							n.Input[i] = fmt.Sprintf("b%d%s", number, in)
						}
					}
				}
				return d, nodes
			}
			d, with := branch(1)
			_, without := branch(2)
			choice := modeltest.Node("If", "logits", "c", modeltest.GraphAttr("then_branch", nil, with...), modeltest.GraphAttr("else_branch", nil, without...))
			nodes := append(slices.Clone(outer.nodes), modeltest.ConstantNode("c", modeltest.Zeros("c", dtype.Bool)), choice, modeltest.Node("Tanh", "y", "logits"))
			m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(d.tensors, nodes)))
			if got := transformer.Of(m.Graph()); !maps.Equal(got, d.want) {
				t.Errorf("roles %v, want %v", got, d.want)
			}
		})
	}
}

// A weight that all layers share is one of the first.
func TestOfShared(t *testing.T) {
	d := &decoder{want: map[string]transformer.Weight{}}
	w, x := d.weight(), d.node("Gather", d.weight()+" i")
	for range layers {
		x = d.node("com.microsoft.MultiHeadAttention", d.node("MatMul", x+" "+w))
	}
	d.want[w] = transformer.Weight{Role: transformer.Value, Layers: layers}
	heads["none"](d, x, "")
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(d.tensors, d.nodes)))
	if got := transformer.Of(m.Graph()); !maps.Equal(got, d.want) {
		t.Errorf("roles %v, want %v", got, d.want)
	}
}

// Without attention there are no layers.
func TestOfOthers(t *testing.T) {
	d := &decoder{want: map[string]transformer.Weight{}}
	x := d.product("MatMul", d.node("Relu", d.product("MatMul", "x", "", 0)), "", 0)
	heads["product"](d, d.node("Relu", x), "")
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(d.tensors, d.nodes)))
	if got := transformer.Of(m.Graph()); !maps.Equal(got, d.want) {
		t.Errorf("roles %v, want %v", got, d.want)
	}
}
