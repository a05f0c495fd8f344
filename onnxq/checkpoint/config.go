package checkpoint

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/internal/graph"
	"onnxquant/internal/shapes"
)

// config is what the JSON files beside a checkpoint say of its codes.
type config struct {
	Bits   int    `json:"bits"`
	Group  int    `json:"group_size"`
	Format string `json:"checkpoint_format"`

	model string // its type
}

// mostConfig bounds the size of such a file.
const mostConfig = 8 << 20

// readConfig reads quantize_config.json or config.json of a folder. A file that is missing or is no JSON says nothing:
// shapes then decide.
func readConfig(folder string) (c config) {
	read := func(name string, to any) bool {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() > mostConfig {
			return false
		}
		text, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(text, to) == nil
	}
	var whole struct {
		Model        string  `json:"model_type"`
		Quantization *config `json:"quantization_config"`
		MLX          *config `json:"quantization"`
	}
	if !read("config.json", &whole) {
		whole.Quantization, whole.MLX = nil, nil
	}
	for _, found := range []*config{whole.MLX, whole.Quantization} {
		if found != nil {
			c = *found
		}
	}
	var own config
	if read("quantize_config.json", &own) && own.Bits != 0 {
		c = own
	}
	c.model = whole.Model
	return c
}

// blockOf returns the number of elements that share a scale, where k elements have a number of scales.
func (c config) blockOf(k, scales int64) int64 {
	if group := int64(c.Group); group > 0 && shapes.DivideUp(k, group) == scales {
		return group
	}
	return shapes.DivideUp(k, max(scales, 1))
}

// onePlus are types of models whose norms multiply by 1 + weight. Graphs with an operator for the norm have the sum.
var onePlus = []string{"gemma", "gemma2", "gemma3", "gemma3_text", "nemotron", "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"}

// plusOne reports whether the model has 1 + weight where the checkpoint has the weight.
func (c *checkpoint) plusOne(v *graph.Value) bool {
	return slices.Contains(onePlus, c.config.model) && strings.HasSuffix(v.Path, "norm.weight") && !strings.Contains(v.Path, "linear_attn") &&
		slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
			op := u.Node.GetOpType()
			return strings.HasSuffix(op, "LayerNormalization") || op == "RMSNormalization" || op == "GroupQueryAttention"
		})
}
