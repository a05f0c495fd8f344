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
	"onnxquant/internal/reach"
)

// Models have the matrices of all experts of a layer in one tensor [experts, rows, K], or turned. Checkpoints have them so,
// too, or a tensor for each expert.

// The matrices of an expert: the products with gate_proj gate those with up_proj, and gate_up_proj has both.
const (
	gateUpProj = "gate_up_proj"
	gateProj   = "gate_proj"
	upProj     = "up_proj"
	downProj   = "down_proj"
)

// mixtral has other names of the matrices of an expert.
var mixtral = map[string]string{gateProj: "w1", upProj: "w3", downProj: "w2"}

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
		case gateUpProj, gateProj, upProj, downProj:
			w.parts = []string{part}
		case "weight", "bias": // of the module
			w.parts, w.bias = []string{gateUpProj, downProj}, len(withoutOnes(v.Tensor.GetDims())) == 2
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
		w.parts = []string{gateProj}
		if fused {
			w.parts, w.turns = []string{gateUpProj}, halves
			if fusion == 1 {
				w.turns = byRow
			}
		} else if len(u.Node.Input) <= 6 || u.Node.Input[6] == "" {
			w.parts = []string{upProj} // nothing is gated
		}
	case 4, 5:
		w.parts = []string{downProj}
	case 6, 7:
		w.parts = []string{upProj}
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
				var p *piece
				if err == nil {
					p, err = s.laidFor(x, v, dims, w.bias)
				}
				if err != nil {
					return nil, fmt.Errorf("experts %s for %s: %w", msg.Quote(module), msg.Quote(v.Path), err)
				}
				return p, nil
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
	case gateUpProj:
		if s != nil {
			return s.inTurns(own, w.turns), nil
		}
		gates, err := c.stored(v, module, gateProj, w.bias, count)
		if gates == nil || err != nil {
			return nil, err
		}
		values, err := c.stored(v, module, upProj, w.bias, count)
		if values == nil || err != nil {
			return nil, err
		}
		return joinedParts(gates, values, w.turns == byRow || w.turns == asStored && own == byRow)
	case gateProj, upProj:
		if s != nil {
			return s, nil
		}
		all, err := c.stored(v, module, gateUpProj, w.bias, count)
		if all == nil || err != nil {
			return nil, err
		}
		return all.half(own, part == upProj), nil
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
		s, err := c.whole(v, t, bias)
		if s != nil {
			s.turned, s.unclear = c.turned(module)
		}
		return s, err
	}
	if s, err := c.blocksOf(v, name); s != nil || err != nil {
		return s, err
	}
	kind := ".weight"
	if bias {
		kind = ".bias"
	}
	if s, err := c.layer(v, module, "."+part, kind); s != nil || err != nil {
		return s, err
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
	return c.eachExpert(v, name, list)
}

// readsTurned reports whether products of the model read the matrices of a value as [K, rows]. known is false if none tells.
func readsTurned(x *graph.Graph, v *graph.Value) (turned, known bool) {
	if slices.ContainsFunc(v.Uses, func(u graph.Use) bool { return discover.IsMoE(u.Node) }) {
		return false, true
	}
	dims := v.Tensor.GetDims()
	return reach.Of(x, v, dims).ReadTurned(x, dims)
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
