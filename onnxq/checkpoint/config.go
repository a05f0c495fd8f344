package checkpoint

import (
	"encoding/json"
	"fmt"
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

	model   string // its type
	told    bool   // the files have a description of codes
	modules map[string]mlxModule
}

// mostConfig bounds the size of such a file.
const mostConfig = 8 << 20

// configs are the names of these files.
var configs = []string{"config.json", "quantize_config.json"}

// isConfig reports whether there is such a file.
func isConfig(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() <= mostConfig
}

// readConfig reads config.json and quantize_config.json of a folder. Files that are missing say nothing.
func readConfig(folder string) (c config, err error) {
	var whole struct {
		Model        string    `json:"model_type"`
		Quantization mlxConfig `json:"quantization_config"`
		MLX          mlxConfig `json:"quantization"`
	}
	var own *config
	for name, to := range map[string]any{configs[0]: &whole, configs[1]: &own} {
		path := filepath.Join(folder, name)
		if !isConfig(path) {
			continue
		}
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, to)
		}
		if err != nil {
			return c, fmt.Errorf("%s, which says how weights are stored: %w", path, err)
		}
	}
	for _, found := range []*config{whole.MLX.config, whole.Quantization.config, own} {
		if found != nil {
			c, c.told = *found, true
		}
	}
	if c.model, c.modules = whole.Model, whole.MLX.modules; c.modules == nil {
		c.modules = whole.Quantization.modules
	}
	return c, nil
}

// blockOf returns the number of elements that share a scale, where k elements have a number of scales.
func (c config) blockOf(k, scales int64) int64 {
	if group := int64(c.Group); group > 0 && shapes.DivideUp(k, group) == scales {
		return group
	}
	return shapes.DivideUp(k, max(scales, 1))
}

// onePlus are types of models whose norms multiply by 1 + weight. Graphs with an operator for the norm have the sum, and so have
// those whose exporter folded it into a constant.
var onePlus = []string{"gemma", "gemma2", "gemma3", "gemma3_text", "nemotron", "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"}

// plusOne reports whether a value of the model is 1 + the checkpoint's weight of that name. Such norms are RMS norms, except
// Nemotron's. Norms of vision towers have the weight itself.
func (c *checkpoint) plusOne(v *graph.Value, name string) bool {
	if !slices.Contains(onePlus, c.config.model) || !strings.HasSuffix(name, "norm.weight") ||
		slices.ContainsFunc([]string{"linear_attn", "vision", "visual"}, func(other string) bool { return strings.Contains(name, other) }) {
		return false
	}
	return slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
		switch u.Node.GetOpType() {
		case "LayerNormalization", "SkipLayerNormalization":
			return c.config.model == "nemotron"
		case "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "RMSNormalization", "GroupQueryAttention":
			return true
		case "Mul":
			return !strings.HasSuffix(v.Name, ".weight") // a constant that the exporter folded; a weight keeps its name
		}
		return false
	})
}
