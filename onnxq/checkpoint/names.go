package checkpoint

import (
	"strings"

	"onnxquant/internal/graph"
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
	".MatMul.", ".", ".Add.", ".", ".attn.", ".self_attn.", ".layernorm.", ".norm.", "final_norm_layernorm", "norm",
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
