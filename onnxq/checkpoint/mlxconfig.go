package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"

	"onnxquant/internal/msg"
)

// mlxConfig is what config.json says of MLX's codes, under quantization or quantization_config: settings for all modules, and by name those of modules that have their own.
type mlxConfig struct {
	*config
	modules map[string]mlxModule
}

// mlxModule are the settings of a module. Without its own, a module has those of the model.
type mlxModule struct {
	Bits  int    `json:"bits"`
	Group int    `json:"group_size"`
	Mode  string `json:"mode"`

	float bool // the module has no codes
}

// UnmarshalJSON implements json.Unmarshaler. Beside the settings, an object has those of a module; false says that it has floats,
// true that it has the settings of the model.
func (m *mlxConfig) UnmarshalJSON(text []byte) error {
	var entries map[string]json.RawMessage
	err := json.Unmarshal(text, &entries)
	if err == nil {
		err = json.Unmarshal(text, &m.config)
	}
	if err != nil {
		return err
	}
	if entries["quant_method"] != nil {
		return nil // of another tool, whose objects are no modules
	}
	var whole mlxModule
	if err := json.Unmarshal(text, &whole); err != nil {
		return err
	}
	m.modules = map[string]mlxModule{"": whole}
	for name, entry := range entries {
		switch {
		case bytes.HasPrefix(entry, []byte("{")):
			own := mlxModule{Bits: 4, Group: 64} // what MLX takes for a module that does not say it
			if err := json.Unmarshal(entry, &own); err != nil {
				return fmt.Errorf("quantization of %s: %w", msg.Quote(name), err)
			}
			m.modules[name] = own
		case string(entry) == "false":
			m.modules[name] = mlxModule{float: true}
		}
	}
	return nil
}

// mlx returns the settings of a module.
func (c config) mlx(name string) (mlxModule, error) {
	m, ok := c.modules[name]
	if !ok {
		m = mlxModule{c.Bits, c.Group, c.modules[""].Mode, false}
	}
	switch {
	case m.float:
		return m, fmt.Errorf("config.json says that %s is in float, and it has scales", msg.Quote(name))
	case m.Mode != "" && m.Mode != "affine":
		return m, fmt.Errorf("mode %s of MLX is not read: want affine", msg.Quote(m.Mode))
	}
	return m, nil
}
