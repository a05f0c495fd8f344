package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

// Models have the matrices of all experts of a layer in one tensor [experts, rows, K], or turned. Checkpoints have them so,
// too, or a tensor for each expert.

// gateUp are the two halves of a product, of which each gates the other.
const (
	gateUp = "gate_up_proj"
	gate   = "gate_proj"
	up     = "up_proj"
	down   = "down_proj"
)

// mixtral has other names of the matrices of an expert.
var mixtral = map[string]string{gate: "w1", up: "w3", down: "w2"}

// wanted says which matrices, or biases, of experts a tensor of the model has.
type wanted struct {
	module string   // of the experts
	parts  []string // what it can be: the shape tells
	bias   bool
	turns  turns // of gates and values, if the model says it
}

// turns says how the rows of gates and values follow each other.
type turns int

const (
	asStored turns = iota
	halves         // all gates, then all values
	byRow          // a gate, a value, a gate …
)

// wantedOf lists what a value can be, by its names and by the MoE that reads it.
func wantedOf(v *graph.Value, names []string) (list []wanted) {
	for _, u := range v.Uses {
		if discover.IsMoE(u.Node) {
			if w := readByMoE(u); w.parts != nil {
				path := strings.ReplaceAll(strings.Trim(u.Node.GetName(), "/"), "/", ".")
				for _, name := range []string{v.Path, path[:strings.LastIndexByte(path, '.')+1]} {
					if before, _, ok := strings.Cut(name, "experts"); ok || name != v.Path && name != "" {
						w.module = before + "experts"
						list = append(list, w)
					}
				}
			}
			return list
		}
	}
	for _, name := range names {
		before, after, ok := cutLast(name, "experts.")
		if !ok {
			continue
		}
		w := wanted{module: before + "experts"}
		part, kind, _ := strings.Cut(after, ".")
		if part, w.bias = strings.CutSuffix(part, "_bias"); kind == "bias" {
			w.bias = true
		}
		switch part {
		case gateUp, gate, up, down:
			w.parts = []string{part}
		case "weight", "bias": // of the module
			w.parts, w.bias = []string{gateUp, down}, len(withoutOnes(v.Tensor.GetDims())) == 2
		default:
			continue
		}
		list = append(list, w)
	}
	return list
}

// cutLast cuts a name at the last place of sep.
func cutLast(name, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(name, sep)
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+len(sep):], true
}

// readByMoE says what an input of com.microsoft's MoE is.
func readByMoE(u graph.Use) (w wanted) {
	fusion := graph.IntAttribute(u.Node, "swiglu_fusion")
	fused := string(graph.Attribute(u.Node, "activation_type").GetS()) == "swiglu" && fusion > 0
	w.bias = u.Input%2 == 1
	switch u.Input {
	case 2, 3:
		w.parts = []string{gate}
		if fused {
			w.parts, w.turns = []string{gateUp}, halves
			if fusion == 1 {
				w.turns = byRow
			}
		} else if len(u.Node.Input) <= 6 || u.Node.Input[6] == "" {
			w.parts = []string{up} // nothing is gated
		}
	case 4, 5:
		w.parts = []string{down}
	case 6, 7:
		w.parts = []string{up}
	}
	return w
}

// blocks of routers and experts have several names.
var mixtures = []string{"mlp", "block_sparse_moe", "moe", "feed_forward"}

// elsewhere lists names that other checkpoints give to what belongs to a router or to experts.
func elsewhere(name string) (list []string) {
	for _, own := range mixtures {
		before, after, ok := cutLast(name, "."+own+".")
		if !ok {
			continue
		}
		router, rest, _ := strings.Cut(after, ".")
		if router != "router" && router != "gate" && router != "experts" {
			continue
		}
		for _, other := range mixtures {
			if router == "experts" {
				list = append(list, before+"."+other+"."+after)
				continue
			}
			for _, router := range []string{"gate", "router"} {
				list = append(list, before+"."+other+"."+router+"."+rest)
			}
		}
	}
	return list
}

// experts returns the matrices or biases of experts that a value of the model has, or nil.
func (c *checkpoint) experts(x *graph.Graph, v *graph.Value, names []string, front string) (*piece, error) {
	dims := withoutOnes(v.Tensor.GetDims())
	if len(dims) < 2 {
		return nil, nil
	}
	for _, w := range wantedOf(v, names) {
		for _, module := range c.spellings(w.module, front) {
			for _, module := range append([]string{module}, trimmed(elsewhere(module+"."))...) {
				s, err := c.stackOf(v, module, w, dims)
				if s == nil && err == nil {
					continue
				}
				if err != nil {
					return nil, fmt.Errorf("experts %s for %s: %w", msg.Quote(module), msg.Quote(v.Path), err)
				}
				turned, known := readsTurned(x, v)
				return s.laidAs(turned, known, dims, w.bias), nil
			}
		}
	}
	return nil, nil
}

func trimmed(names []string) (list []string) {
	for _, name := range names {
		list = append(list, strings.TrimSuffix(name, "."))
	}
	return list
}

// stackOf returns the first of the wanted parts that has the shape of the value, or nil.
func (c *checkpoint) stackOf(v *graph.Value, module string, w wanted, dims []int64) (*stack, error) {
	var found, first *stack
	for _, part := range w.parts {
		s, err := c.part(v, module, part, w, dims[0])
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue
		}
		if first == nil {
			first = s
		}
		if !s.fits(dims, w.bias) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("the shape %v is that of %s and of %s: --names can tell which it is", v.Tensor.GetDims(), found.name, s.name)
		}
		found = s
	}
	if found == nil && first != nil && len(w.parts) == 1 {
		return nil, fmt.Errorf("the shape %v is not that of the model, %v", first.tensors[0].Shape, v.Tensor.GetDims())
	}
	return found, nil
}

// part returns a part of all experts of a module, or nil: as it is stored, joined of its halves, or cut out of both.
func (c *checkpoint) part(v *graph.Value, module, part string, w wanted, count int64) (*stack, error) {
	s, err := c.stored(v, module, part, w.bias, count)
	if err != nil {
		return nil, err
	}
	own := halves
	if c.config.model == "gpt_oss" {
		own = byRow
	}
	switch part {
	case gateUp:
		if s != nil {
			return s.inTurns(own, w.turns), nil
		}
		gates, err := c.stored(v, module, gate, w.bias, count)
		if gates == nil || err != nil {
			return nil, err
		}
		values, err := c.stored(v, module, up, w.bias, count)
		if values == nil || err != nil {
			return nil, err
		}
		return both(v, gates, values, w.turns == byRow)
	case gate, up:
		if s != nil {
			return s, nil
		}
		all, err := c.stored(v, module, gateUp, w.bias, count)
		if all == nil || err != nil {
			return nil, err
		}
		return all.half(own, part == up), nil
	}
	return s, nil
}

// stored returns a part that a checkpoint has as one tensor, or expert by expert; nil if it has not.
func (c *checkpoint) stored(v *graph.Value, module, part string, bias bool, count int64) (*stack, error) {
	name := module + "." + part
	if bias {
		name += "_bias"
	}
	if t, ok := c.tensors[name]; ok {
		return c.whole(v, t, module, part, bias)
	}
	if s, err := c.blocksOf(v, name); s != nil || err != nil {
		return s, err
	}
	kind := ".weight"
	if bias {
		kind = ".bias"
	}
	var list []piece
	for _, part := range []string{part, mixtral[part]} {
		for {
			p, err := c.piece(module + "." + strconv.Itoa(len(list)) + "." + part + kind)
			if err != nil {
				return nil, err
			}
			if p == nil {
				break
			}
			list = append(list, *p)
		}
		if list != nil {
			break
		}
	}
	switch {
	case list == nil:
		return nil, nil
	case int64(len(list)) != count:
		return nil, fmt.Errorf("the checkpoint has %d experts with %s, the model %d", len(list), part, count)
	}
	return c.stacked(v, name, list)
}

// takes reports whether a node takes matrices out of a stack by indices.
func takes(n *onnxpb.NodeProto) bool {
	return graph.IsStandard(n.GetDomain()) && (n.GetOpType() == "Gather" || n.GetOpType() == "GatherND")
}

// readsTurned reports whether products of the model read the matrices of a value as [K, rows]. known is false if none does.
func readsTurned(x *graph.Graph, v *graph.Value) (turned, known bool) {
	for _, u := range v.Uses {
		if discover.IsMoE(u.Node) {
			return false, true
		}
		if takes(u.Node) {
			made := x.Made(u.Node)
			if made == nil || len(made.Uses) != 1 {
				continue
			}
			u = made.Uses[0]
		}
		if u.Node.GetOpType() == "MatMul" {
			return u.Input == 1, true
		}
	}
	return false, false
}

// shapeOf is the shape of the part of a model.
func shapeOf(dims []int64, bias bool) []int64 {
	if bias {
		return slices.Concat(dims, []int64{1})
	}
	return dims
}

// floatsOf returns elements of a piece as a stored tensor, a matrix, of the type of v.
func (c *checkpoint) floatsOf(v *graph.Value, p piece) (*lazy.Tensor, error) {
	t, err := c.elements(v, p, dtype.DType(v.Tensor.GetDataType()))
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", msg.Quote(p.name), err)
	}
	if len(t.Shape) == 1 { // a bias
		t = t.Reshaped([]int64{t.Shape[0], 1})
	}
	if len(t.Shape) != 2 {
		return nil, fmt.Errorf("tensor %s of shape %v: want a matrix", msg.Quote(p.name), t.Shape)
	}
	return t, nil
}
