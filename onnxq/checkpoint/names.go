package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/rules"
)

// find returns the pieces that make a value: mostly one; nil if there are none. All names of the checkpoint begin with front.
func (c *checkpoint) find(x *graph.Graph, v *graph.Value, names *rules.Names, front string) ([]piece, error) {
	name, ok := names.For(v.Path)
	if !ok {
		return nil, nil
	}
	list := []string{name}
	if name == v.Path {
		list = append(list, moduleNames(v)...)
	}
	for _, name := range list {
		list = append(list, elsewhere(name)...)
	}
	for i, name := range list {
		for _, try := range c.spellings(name, front) {
			p, err := c.piece(try)
			switch {
			case err != nil:
				return nil, err
			case p != nil && p.stacked() && (name != v.Path || !p.plain.Type.DType().Float()) && len(wantedOf(v, []string{name})) > 0:
				continue // experts finds the order of rows and columns
			case p != nil && i > 0 && len(withoutOnes(p.shape())) != len(withoutOnes(v.Tensor.GetDims())):
				continue // another constant of the module, such as the epsilon of a norm
			case p != nil:
				return []piece{*p}, nil
			}
			if parts, err := c.parts(try); parts != nil || err != nil {
				return parts, err
			}
			part, err := c.partOf(try, v)
			if err != nil {
				return nil, err
			}
			if part != nil {
				return []piece{*part}, nil
			}
		}
	}
	if tied, err := c.tied(list, front); tied != nil || err != nil {
		return tied, err
	}
	p, err := c.experts(x, v, list, front)
	if p == nil || err != nil {
		return nil, err
	}
	return []piece{*p}, nil
}

// modules are parts of models that are exported alone: names of their graphs begin inside of them.
var modules = []string{"encoder.", "model.encoder.", "decoder.", "model.decoder."}

// module returns what is in front of all names of the checkpoint: "" if a tensor of the model is found without. Else the model
// is the module with the most tensors of the model, and the fewest others; "" if two have as many.
func (c *checkpoint) module(x *graph.Graph, names *rules.Names) string {
	best, most, others := "", 0, 0
	for _, front := range append([]string{""}, modules...) {
		n := 0
		for _, v := range x.Values {
			if dtype.DType(v.Tensor.GetDataType()).Float() {
				if parts, err := c.find(x, v, names, front); parts != nil || err != nil {
					n++
				}
			}
		}
		if n > 0 && front == "" {
			return ""
		}
		left := -n
		for name := range c.tensors {
			if strings.HasPrefix(name, front) {
				left++
			}
		}
		switch {
		case n > most, n == most && left < others:
			best, most, others = front, n, left
		case n == most && left == others:
			best = ""
		}
	}
	if most == 0 {
		return ""
	}
	return best
}

// tied returns the embedding for the weight of a head that the checkpoint lacks: the two are one tensor then.
func (c *checkpoint) tied(names []string, front string) ([]piece, error) {
	if !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(c.spellings(name, front), "lm_head.weight") }) {
		return nil, nil
	}
	for _, name := range c.spellings("model.embed_tokens.weight", front) {
		p, err := c.piece(name)
		if err != nil {
			return nil, err
		}
		if p != nil {
			return []piece{*p}, nil
		}
	}
	return nil, nil
}

// piece returns the tensor of that name, or the weight in codes; nil if there is none.
func (c *checkpoint) piece(name string) (*piece, error) {
	q, err := c.coded(name)
	if err != nil {
		return nil, err
	}
	if q != nil {
		return &piece{name: q.uses[0], codes: q}, nil
	}
	if t, ok := c.tensors[name]; ok {
		return &piece{name: name, plain: &t}, nil
	}
	return nil, nil
}

// spellings are the names under which a checkpoint may have a tensor: with the name of the base model in front, or without.
// That name is "model", or the type of the model, such as "bert". A module around the model may be called so, too. A front
// allows one name alone.
func (c *checkpoint) spellings(name, front string) []string {
	if front != "" {
		return []string{front + name}
	}
	fronts := []string{"model."}
	if c.config.model != "" {
		fronts = append(fronts, c.config.model+".")
	}
	list := []string{name}
	for _, front := range fronts {
		rest, ok := strings.CutPrefix(name, front)
		if !ok {
			list = append(list, front+name)
		}
		for ; ok; rest, ok = strings.CutPrefix(rest, front) {
			list = append(list, rest)
		}
	}
	return list
}

// builder maps parts of names of onnxruntime-genai's model builder to those of checkpoints.
var builder = strings.NewReplacer(
	".MatMul.", ".", ".Add.", ".", ".attn.", ".self_attn.", "_norm.layernorm.", "_norm.", ".layernorm.", ".norm.", "final_norm_layernorm", "norm",
)

// moduleNames are names of a weight by the module that it belongs to.
func moduleNames(v *graph.Value) (list []string) {
	if made := builder.Replace(v.Path); made != v.Path {
		list = append(list, made)
		if i := strings.Index(made, ".norm."); i >= 0 { // model.layers.32.norm.weight, behind the last layer
			list = append(list, "model"+made[i:])
		}
	}
	for _, u := range v.Uses {
		kinds := []string{".weight"}
		switch op := u.Node.GetOpType(); {
		case op == "Add" || u.Input == 2 && (op == "Gemm" || op == "Conv" || op == "LayerNormalization"):
			kinds[0] = ".bias"
		case op == "Expand": // to each row of an attention
			kinds = append(kinds, ".sinks")
		}
		var modules []string
		path := strings.Trim(u.Node.GetName(), "/")
		if i := strings.LastIndexByte(path, '/'); i >= 0 {
			modules = append(modules, strings.ReplaceAll(path[:i], "/", "."))
		}
		if module := scope(u.Node); module != "" {
			modules = append(modules, module)
			if _, inner, ok := strings.Cut(module, "."); ok { // without the module that was exported around the model
				modules = append(modules, inner)
			}
		}
		for _, module := range modules {
			for _, kind := range kinds {
				list = append(list, module+kind)
			}
		}
	}
	return list
}

// scope returns the module of a node in an export by torch.export, which lists modules from the outermost on, then the
// operator:
//
//	['', 'model', 'model.layers.0', 'linear_3']
func scope(n *onnxpb.NodeProto) string {
	for _, p := range n.MetadataProps {
		if list := strings.Split(p.GetValue(), ", "); p.GetKey() == "pkg.torch.onnx.name_scopes" && len(list) >= 3 {
			return strings.Trim(list[len(list)-2], "[]'\"")
		}
	}
	return ""
}

// joined are modules that hold several: their weights follow each other along the outputs.
var joined = map[string][]string{"qkv_proj": {"q_proj", "k_proj", "v_proj"}, "gate_up_proj": {"gate_proj", "up_proj"}}

// partOf returns the part of a tensor of several modules, which follow each other along the outputs, that one module has.
func (c *checkpoint) partOf(name string, v *graph.Value) (*piece, error) {
	for whole, names := range joined {
		for i, part := range names {
			before, after, ok := strings.Cut(name, part+".")
			if !ok {
				continue
			}
			p, err := c.piece(before + whole + "." + after)
			if p == nil || err != nil || p.stacked() {
				return nil, err
			}
			rows, dims := p.shape(), v.Tensor.GetDims()
			wrong := fmt.Errorf("tensor %s of shape %v has no part of shape %v for %s", msg.Quote(p.name), rows, dims, msg.Quote(v.Path))
			if len(rows) == 0 || len(rows) != len(dims) {
				return nil, wrong
			}
			count := dims[0] // of the part
			if len(dims) == 2 && len(rows) == 2 && dims[0] == rows[1] {
				count = dims[1]
			}
			behind := count * int64(len(names)-1-i) // k_proj and v_proj have one size, as gate_proj and up_proj have
			p.first, p.count = max(rows[0]-behind-count, 0), count
			if i == 0 {
				p.first = 0
			}
			if rows[0] <= count || i > 0 && p.first == 0 {
				return nil, wrong
			}
			return p, p.cut()
		}
	}
	return nil, nil
}

// parts returns the pieces that a joined tensor consists of, or nil.
func (c *checkpoint) parts(name string) ([]piece, error) {
	for whole, names := range joined {
		before, after, ok := strings.Cut(name, whole)
		if !ok {
			continue
		}
		var list []piece
		for _, part := range names {
			p, err := c.piece(before + part + after)
			if p == nil || err != nil || p.stacked() {
				return nil, err
			}
			list = append(list, *p)
		}
		return list, nil
	}
	return nil, nil
}
