package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/rules"
)

// find returns the pieces that make a value: mostly one; nil if there are none.
func (c *checkpoint) find(v *graph.Value, names *rules.Names) ([]piece, error) {
	name, ok := names.For(v.Path)
	if !ok {
		return nil, nil
	}
	list := []string{name}
	if name == v.Path {
		list = append(list, moduleNames(v)...)
	}
	for _, name := range list {
		for _, try := range spellings(name) {
			p, err := c.piece(try)
			if err != nil {
				return nil, err
			}
			if p != nil {
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
	return c.tied(list)
}

// tied returns the embedding for the weight of a head that the checkpoint lacks: the two are one tensor then.
func (c *checkpoint) tied(names []string) ([]piece, error) {
	if !slices.Contains(names, "lm_head.weight") {
		return nil, nil
	}
	for _, name := range spellings("model.embed_tokens.weight") {
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

// spellings are the names under which a checkpoint may have a tensor: with the name of the language model in front, or without.
func spellings(name string) []string {
	list := []string{name}
	if rest, ok := strings.CutPrefix(name, "model."); ok {
		return append(list, rest)
	}
	return append(list, "model."+name)
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
		path := strings.Trim(u.Node.GetName(), "/")
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			continue
		}
		kind := ".weight"
		if op := u.Node.GetOpType(); op == "Add" || u.Input == 2 && (op == "Gemm" || op == "Conv" || op == "LayerNormalization") {
			kind = ".bias"
		}
		list = append(list, strings.ReplaceAll(path[:i], "/", ".")+kind)
	}
	return list
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
			if p == nil || err != nil {
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
			if p == nil || err != nil {
				return nil, err
			}
			list = append(list, *p)
		}
		return list, nil
	}
	return nil, nil
}
