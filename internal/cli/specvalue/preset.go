package specvalue

import "onnxquant/internal/preset"

// Preset is the value of a flag that takes a preset, by its name or in a file.
type Preset struct{ To *string }

func (p Preset) Set(s string) error { *p.To = s; return preset.Exists(s) }
func (p Preset) String() string     { return "" }
func (p Preset) Type() string       { return "NAME" }
func (p Preset) Values() []string   { return preset.Names() }
func (p Preset) OrFile()            {}

// About returns the summary of a preset.
func (p Preset) About(name string) string {
	known, err := preset.Load(name)
	if err != nil {
		return ""
	}
	return known.About
}
