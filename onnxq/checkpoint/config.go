package checkpoint

import (
	"encoding/json"
	"os"
	"path/filepath"

	"onnxquant/internal/shapes"
)

// config is what the JSON files beside a checkpoint say of its codes.
type config struct {
	Bits   int    `json:"bits"`
	Group  int    `json:"group_size"`
	Format string `json:"checkpoint_format"`
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
	if read("quantize_config.json", &c) && c.Bits != 0 {
		return c
	}
	var whole struct {
		Quantization *config `json:"quantization_config"`
		MLX          *config `json:"quantization"`
	}
	if !read("config.json", &whole) {
		return config{}
	}
	for _, found := range []*config{whole.MLX, whole.Quantization} {
		if found != nil {
			c = *found
		}
	}
	return c
}

// blockOf returns the number of elements that share a scale, where k elements have a number of scales.
func (c config) blockOf(k, scales int64) int64 {
	if group := int64(c.Group); group > 0 && shapes.DivideUp(k, group) == scales {
		return group
	}
	return shapes.DivideUp(k, max(scales, 1))
}
