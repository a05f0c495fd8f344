package ggufmodel

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/formats/gguf"
	"onnxquant/internal/graph"
	"onnxquant/internal/nearest"
	"onnxquant/internal/reach"
)

// DefaultMix is the default of Options.Mix.
const DefaultMix = "Q4_K_M"

// mix chooses the type of a weight by its role in the model. The mixes, their names and numbers are
// llama.cpp's (llama_ftype and llama-quantize).
type mix struct {
	name   string
	number uint32 // general.file_type
	base   gguf.Type
	rules  []mixRule // the first that matches applies
}

// mixRule is the type for weights of a role, in some layers.
type mixRule struct {
	role  role
	typ   gguf.Type
	where func(layer, layers int, weighted bool) bool // nil: everywhere
}

// role is the role of a weight.
type role int

const (
	otherRole role = iota
	outputRole
	embeddingRole
	positionRole
	valueRole     // of attention
	attentionRole // query, key and value together
	projectRole   // output of attention
	downRole      // of the feed-forward network
)

// outerLayers selects the layers that need more bits: the first and the last eighth, and
// every third in between.
func outerLayers(layer, layers int, _ bool) bool {
	return layer < layers/8 || layer >= 7*layers/8 || (layer-layers/8)%3 == 2
}

func firstEighth(layer, layers int, _ bool) bool { return layer < layers/8 }
func firstTwo(layer, _ int, _ bool) bool         { return layer < 2 }
func firstFour(layer, _ int, _ bool) bool        { return layer < 4 }

func firstSixteenth(layer, layers int, _ bool) bool { return layer < layers/16 }

// weightedEighth and unweightedEighth depend on whether there is an importance matrix.
func weightedEighth(layer, layers int, weighted bool) bool   { return weighted && layer < layers/8 }
func unweightedEighth(layer, layers int, weighted bool) bool { return !weighted && layer < layers/8 }

var mixes = []mix{
	{"F32", 0, gguf.F32, nil},
	{"F16", 1, gguf.F16, nil},
	{"BF16", 32, gguf.BF16, nil},
	{"Q8_0", 7, gguf.Q8_0, nil},
	{"Q4_0", 2, gguf.Q4_0, []mixRule{{downRole, gguf.Q4_1, weightedEighth}}},
	{"Q4_1", 3, gguf.Q4_1, nil},
	{"Q5_0", 8, gguf.Q5_0, []mixRule{{downRole, gguf.Q5_1, weightedEighth}}},
	{"Q5_1", 9, gguf.Q5_1, nil},
	{"IQ4_NL", 25, gguf.IQ4_NL, []mixRule{{downRole, gguf.Q5_K, unweightedEighth}}},
	{"MXFP4", 38, gguf.MXFP4, nil},
	{"Q2_K", 10, gguf.Q2_K, []mixRule{{valueRole, gguf.Q3_K, nil}, {downRole, gguf.Q3_K, nil}, {projectRole, gguf.Q3_K, nil}}},
	{"Q3_K_S", 11, gguf.Q3_K, nil},
	{"Q3_K_M", 12, gguf.Q3_K, []mixRule{
		{valueRole, gguf.Q5_K, firstTwo}, {valueRole, gguf.Q4_K, nil},
		{downRole, gguf.Q5_K, firstSixteenth}, {downRole, gguf.Q4_K, nil},
		{projectRole, gguf.Q4_K, nil}, {attentionRole, gguf.Q4_K, nil},
	}},
	{"Q3_K_L", 13, gguf.Q3_K, []mixRule{
		{valueRole, gguf.Q5_K, nil}, {downRole, gguf.Q5_K, nil}, {projectRole, gguf.Q5_K, nil}, {attentionRole, gguf.Q4_K, nil},
	}},
	{"Q4_K_S", 14, gguf.Q4_K, []mixRule{{valueRole, gguf.Q5_K, firstFour}, {downRole, gguf.Q5_K, firstEighth}}},
	{"Q4_K_M", 15, gguf.Q4_K, []mixRule{
		{valueRole, gguf.Q6_K, outerLayers}, {downRole, gguf.Q6_K, outerLayers}, {attentionRole, gguf.Q5_K, nil},
	}},
	{"Q5_K_S", 16, gguf.Q5_K, nil},
	{"Q5_K_M", 17, gguf.Q5_K, []mixRule{
		{valueRole, gguf.Q6_K, outerLayers}, {downRole, gguf.Q6_K, outerLayers}, {attentionRole, gguf.Q6_K, nil},
	}},
	{"Q6_K", 18, gguf.Q6_K, nil},
}

// Mixes lists the names of the mixes that NewPlan knows.
func Mixes() []string {
	var names []string
	for _, m := range mixes {
		names = append(names, m.name)
	}
	return names
}

func mixNamed(name string) (*mix, error) {
	for i := range mixes {
		if strings.EqualFold(mixes[i].name, name) {
			return &mixes[i], nil
		}
	}
	if near := nearest.Names(strings.ToUpper(name), Mixes()); len(near) > 0 {
		return nil, fmt.Errorf("mix %q is not known; did you mean %s?", name, english.WordSeries(near, "or"))
	}
	return nil, fmt.Errorf("mix %q is not known (known: %s)", name, strings.Join(Mixes(), ", "))
}

// floats reports whether the base type has no blocks.
func (m *mix) floats() bool {
	elements, _ := m.base.Block()
	return elements == 1
}

// choose returns the type of a weight, and the reason if it is not the base type.
func (m *mix) choose(r role, layer, layers int, weighted bool) (gguf.Type, string) {
	if r == outputRole && !m.floats() && m.base != gguf.Q8_0 {
		return gguf.Q6_K, "output"
	}
	for _, rule := range m.rules {
		if rule.role == r && (rule.where == nil || layer >= 0 && rule.where(layer, layers, weighted)) {
			return rule.typ, roleNames[r]
		}
	}
	return m.base, ""
}

// fallbacks replace types with blocks of 256 if that does not divide the length of rows.
var fallbacks = map[gguf.Type]gguf.Type{
	gguf.Q2_K: gguf.Q4_0, gguf.Q3_K: gguf.Q4_0, gguf.Q4_K: gguf.Q5_0, gguf.Q5_K: gguf.Q5_1, gguf.Q6_K: gguf.Q8_0,
}

// fitting returns t if its blocks fill rows of k elements, else its fallback if that fits. Otherwise a
// BF16 weight stays BF16, and any other becomes F16.
func fitting(t, own gguf.Type, k int64) gguf.Type {
	fills := func(t gguf.Type) bool {
		elements, _ := t.Block()
		return k%elements == 0
	}
	if other, ok := fallbacks[t]; ok && !fills(t) {
		t = other
	}
	switch {
	case fills(t):
		return t
	case own == gguf.BF16:
		return own
	}
	return gguf.F16
}

var roleNames = map[role]string{
	outputRole: "output", embeddingRole: "embedding", positionRole: "positions", valueRole: "attention value",
	attentionRole: "attention", projectRole: "attention output", downRole: "feed-forward down",
}

// roleWords gives roles by name: of the weight, in the model or in the file, or of a node
// that reads it. Words are separated by dots, slashes or colons.
var roleWords = []struct {
	role  role
	words *regexp.Regexp
}{
	{outputRole, words("lm_head", "embed_out", "output_projection")},
	{valueRole, words("attn_v", "v_proj", "to_v", "wv", "c_v", "value")},
	{attentionRole, words("attn_qkv", "qkv", "qkv_proj", "wqkv", "c_attn", "query_key_value")},
	{projectRole, words("attn_output", "o_proj", "out_proj", "wo", "attn[./]c_proj", "attn[./]proj", "proj", "attention[./](?:output[./])?dense")},
	{downRole, words("ffn_down", "ffn_down_exps", "down_proj", "down", "w2", "mlp[./]c_proj", "fc2", "fc_out", "dense_4h_to_h")},
	{positionRole, words("position_embd", "position_embeddings?", "pos_embed(?:ding)?s?", "pos", "wpe", "cos_cache", "sin_cache", "cos", "sin", "rotary_emb",
		"rel_pos", "relative_attention_bias", "attn_rel_b", "token_types", "token_type_embeddings")},
}

func words(list ...string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)(?:^|[./:])(?:` + strings.Join(list, "|") + `)(?:$|[./:])`)
}

var layerNumber = regexp.MustCompile(`(?i)(?:^|[./:])(?:blk|blocks?|layers?|h)[./](\d{1,6})(?:$|[./:])`)

// layerOf returns the layer number in the first name with one, or -1.
func layerOf(names []string) int {
	for _, name := range names {
		if m := layerNumber.FindStringSubmatch(name); m != nil {
			n, _ := strconv.Atoi(m[1])
			return n
		}
	}
	return -1
}

// roleOf returns the role of a weight, from its names and the graph.
func roleOf(x *graph.Graph, names []string, leaves []reach.Leaf) role {
	if slices.ContainsFunc(leaves, func(l reach.Leaf) bool { return makesOutput(x, l) }) || slices.Contains(names, "output.weight") {
		return outputRole
	}
	for _, r := range roleWords {
		if slices.ContainsFunc(names, r.words.MatchString) {
			return r.role
		}
	}
	if slices.ContainsFunc(leaves, func(l reach.Leaf) bool { return looksUp(l.Use) }) {
		return embeddingRole
	}
	return otherRole
}

// makesOutput reports whether a product computes a graph output, possibly with a bias and
// changes of type or shape behind it.
func makesOutput(x *graph.Graph, l reach.Leaf) bool {
	if !slices.Contains([]string{"MatMul", "Gemm", "FusedMatMul", "FusedGemm"}, l.Node.GetOpType()) {
		return false
	}
	v := x.Made(l.Node)
	for range 8 {
		if v == nil || v.Output {
			return v != nil
		}
		if len(v.Uses) != 1 || !slices.Contains([]string{"Add", "Cast", "Identity", "Reshape", "Squeeze"}, v.Uses[0].Node.GetOpType()) {
			return false
		}
		v = x.Made(v.Uses[0].Node)
	}
	return false
}
