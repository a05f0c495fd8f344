// Package preset has sets of outputs that an ecosystem wants of each model, with their names and
// flags.
//
// A preset is a JSON file. Those of this package are beside it; users can write their own:
//
//	{
//	  "about": "int8 and int4 of each model",
//	  "keep": true,
//	  "outputs": [
//	    {"file": "{name}.int8.onnx", "flags": ["--bits", "8"]},
//	    {"file": "{name}.int4.onnx", "flags": ["--bits", "4"],
//	     "cases": [{"model_types": ["whisper"], "flags": ["--exclude", "*conv*"]}],
//	     "weights": [{"roles": ["head"], "match": ["*lm_head*"], "settings": {"bits": 8}}]}
//	  ]
//	}
//
// {name} is the name of the model file without .onnx, {file} that of the output. More keys: "folder" is
// where models of the root of the input go, "needs" the files without which the result is of no use.
package preset

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"onnxquant/internal/nearest"
	"onnxquant/internal/regularfile"
	"onnxquant/internal/transformer"
	"onnxquant/rules"
)

//go:embed *.json
var files embed.FS

// Preset is a set of outputs.
type Preset struct {
	About   string   `json:"about"`
	Keep    bool     `json:"keep"` // the model itself is copied, too
	Outputs []Output `json:"outputs"`
	Config  *Config  `json:"config"`
	Folder  string   `json:"folder"` // where models in the root are written, unless the input has models there
	Needs   []Need   `json:"needs"`
}

// Need is a file that the program which opens the result looks for.
type Need struct {
	File     string `json:"file"`
	Why      string `json:"why"`      // who needs it, and what makes it
	Required bool   `json:"required"` // without it, a folder is not converted

	With string `json:"with"` // only beside this file; "": always
	If   string `json:"if"`   // only if config.json has this key, which is true; "": always

	Named bool `json:"named"` // File, which is JSON, names files by the key filename: these are needed, not File
}

// Output describes one conversion of each model.
type Output struct {
	File    string   `json:"file"`
	Flags   []string `json:"flags"`
	Cases   []Case   `json:"cases"`
	Weights []Weight `json:"weights"`
}

// Case has more flags for some models.
type Case struct {
	ModelTypes    []string `json:"model_types"`     // one of them is the model_type of config.json
	NotModelTypes []string `json:"not_model_types"` // none of them is the model_type of config.json
	Operators     []string `json:"operators"`       // one of them is in the model
	Flags         []string `json:"flags"`
}

// Weight has settings, as in a precision_info, for weights with some roles or names.
type Weight struct {
	Roles     []transformer.Role `json:"roles"`     // that the structure of the model gives them
	Match     []string           `json:"match"`     // globs on names of weights and of the nodes that read them; with Roles only if no weight of the model has one of these
	Operators []string           `json:"operators"` // operators that read them
	Layers    string             `json:"layers"`    // "sensitive": of the layers, only the first and last eighth and every third between; the number follows "layers."
	Settings  json.RawMessage    `json:"settings"`
}

// Config has the settings that a file of the folder makes for the outputs.
type Config struct {
	File         string   `json:"file"`
	ExternalData []string `json:"external_data"` // path of the object that maps outputs to the number of their data files
}

// Names lists the presets of this package.
func Names() []string {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".json"))
	}
	return names
}

// maxSize is the largest size of a preset.
const maxSize = 1 << 20

// Load returns the preset of this name, or in the file of that name.
func Load(name string) (*Preset, error) {
	text, err := files.ReadFile(name + ".json")
	if err != nil {
		if text, err = read(name); errors.Is(err, fs.ErrNotExist) {
			return nil, unknown(name)
		}
		if err != nil {
			return nil, err
		}
	}
	p := &Preset{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(p); err != nil {
		return nil, fmt.Errorf("preset %s: %w", name, err)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("preset %s: %w", name, err)
	}
	return p, nil
}

// Exists refuses a name that is neither a preset's nor a file's.
func Exists(name string) error {
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) && !slices.Contains(Names(), name) {
		return unknown(name)
	}
	return nil
}

// unknown is the error about a name that is neither a preset's nor a file's.
func unknown(name string) error {
	text := fmt.Sprintf("there is no preset and no file %q; presets: %s", name, strings.Join(Names(), ", "))
	if near, ok := nearest.Name(strings.ToLower(name), Names()); ok {
		text += "; did you mean " + near + "?"
	}
	return errors.New(text)
}

func read(name string) ([]byte, error) {
	f, _, err := regularfile.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if len(text) > maxSize {
		return nil, fmt.Errorf("%s is larger than %d bytes, no preset", name, maxSize)
	}
	return text, err
}

func (p *Preset) check() error {
	if len(p.Outputs) == 0 {
		return errors.New("it has no outputs")
	}
	if f := p.Folder; f != "" && (strings.ContainsAny(f, `/\`) || strings.HasPrefix(f, ".")) {
		return fmt.Errorf("folder %q: want a name such as onnx", f)
	}
	for _, n := range p.Needs {
		if n.File == "" || n.Why == "" {
			return errors.New("needs: want file and why")
		}
	}
	seen := map[string]bool{}
	if p.Keep {
		seen["{name}.onnx"] = true
	}
	if c := p.Config; c != nil && (c.File == "" || len(c.ExternalData) == 0) {
		return errors.New("config: want file and external_data, a list of keys")
	}
	for _, o := range p.Outputs {
		switch {
		case strings.ContainsAny(o.File, `/\`) || !strings.HasSuffix(o.File, ".onnx") || !strings.Contains(o.File, "{name}"):
			return fmt.Errorf("file %q: want a name such as {name}_q4.onnx", o.File)
		case seen[o.File]:
			return fmt.Errorf("two outputs are called %s", o.File)
		}
		seen[o.File] = true
		for _, w := range o.Weights {
			if w.Layers != "" && w.Layers != "sensitive" {
				return fmt.Errorf("layers %q: want sensitive", w.Layers)
			}
			for _, r := range w.Roles {
				if !slices.Contains(transformer.Roles, r) {
					return fmt.Errorf("role %q: want one of %q", r, transformer.Roles)
				}
			}
		}
	}
	return nil
}

// Sources removes models that are outputs of other models.
func (p *Preset) Sources(models []string) []string {
	made := map[string]bool{}
	for _, m := range models {
		for _, o := range p.Outputs {
			if name := o.Name(m); name != m {
				made[name] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(models), func(m string) bool { return made[m] })
}

// Name returns the name of the output for a model.
func (o Output) Name(model string) string {
	folder, base := path.Split(model)
	return folder + strings.ReplaceAll(o.File, "{name}", strings.TrimSuffix(base, path.Ext(base)))
}

// FlagsFor returns the flags of the output for a model.
func (o Output) FlagsFor(model, modelType string, operators map[string]bool) []string {
	flags := slices.Clone(o.Flags)
	for _, c := range o.Cases {
		if len(c.ModelTypes) > 0 && !slices.Contains(c.ModelTypes, modelType) || slices.Contains(c.NotModelTypes, modelType) ||
			len(c.Operators) > 0 && !slices.ContainsFunc(c.Operators, func(op string) bool { return operators[op] }) {
			continue
		}
		flags = append(flags, c.Flags...)
	}
	for i, f := range flags {
		flags[i] = strings.ReplaceAll(f, "{file}", path.Base(o.Name(model)))
	}
	return flags
}

// Tensor is a weight of a plan.
type Tensor struct {
	Name      string
	Nodes     []string // that read it
	Consumers []string // their operators and inputs, such as MatMul:1
	Role      transformer.Weight
}

// Precision returns the settings of single weights, or nil without any.
func (o Output) Precision(tensors []Tensor) (*rules.Precision, error) {
	settings := map[string]json.RawMessage{}
	layers := 0
	for _, t := range tensors {
		layers = max(layers, layerOf(t)+1)
	}
	for _, w := range o.Weights {
		known := slices.ContainsFunc(tensors, w.hasRole)
		for _, t := range tensors {
			layer, of := layerOf(t), layers
			matches := w.matches(t)
			if known {
				layer, of, matches = t.Role.Layer, t.Role.Layers, w.hasRole(t) || w.reads(t)
			}
			if matches && (w.Layers == "" || sensitive(layer, of)) {
				settings[escape(t.Name)] = w.Settings
			}
		}
	}
	if len(settings) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	return rules.ParsePrecision(text)
}

func (w Weight) hasRole(t Tensor) bool { return slices.Contains(w.Roles, t.Role.Role) }

// reads reports whether one of the operators reads a weight.
func (w Weight) reads(t Tensor) bool {
	return slices.ContainsFunc(t.Consumers, func(c string) bool {
		op, _, _ := strings.Cut(c, ":")
		return slices.Contains(w.Operators, op)
	})
}

// matches reports whether names or operators fit.
func (w Weight) matches(t Tensor) bool {
	return w.reads(t) || slices.ContainsFunc(w.Match, func(glob string) bool {
		return rules.MatchName(glob, t.Name) || slices.ContainsFunc(t.Nodes, func(n string) bool { return rules.MatchName(glob, n) })
	})
}

// escape makes a glob that matches only the name.
func escape(name string) string {
	return regexp.MustCompile(`[*?\[\]\\]`).ReplaceAllString(name, `\$0`)
}

var layer = regexp.MustCompile(`layers?[./](\d{1,6})\b`)

// layerOf returns the number of the layer in which a weight is, or -1.
func layerOf(t Tensor) int {
	for _, name := range append([]string{t.Name}, t.Nodes...) {
		if m := layer.FindStringSubmatch(name); m != nil {
			n, _ := strconv.Atoi(m[1])
			return n
		}
	}
	return -1
}

// sensitive reports whether layer i of n gets more bits in mixed models of llama.cpp and of
// onnxruntime-genai's builder.
func sensitive(i, n int) bool {
	eighth := int(math.RoundToEven(float64(n) / 8))
	return i >= 0 && (8*i < n || 8*i >= 7*n || ((i-eighth)%3+3)%3 == 2)
}
