package ggufmodel

import (
	"fmt"
	"slices"
	"strings"

	"onnxquant/formats/ggml"
	"onnxquant/formats/gguf"
	"onnxquant/internal/msg"
	"onnxquant/rules"
)

// TypeRule is the type of the tensors that match a name.
type TypeRule struct {
	Pattern string // name or glob: of the tensor in the model or the file, or of a node that reads it
	Type    string // name of an encoding of package ggml, or F64
}

// Types lists the possible types of a weight in a GGUF file: the encodings of package ggml that GGUF
// supports, and F64 for float64 weights.
func Types() []string {
	var names []string
	for _, e := range ggml.All() {
		if t := gguf.Type(e.Type); t.Known() && strings.EqualFold(t.String(), e.Name) {
			names = append(names, e.Name)
		}
	}
	return append(names, gguf.F64.String())
}

// typeNamed returns the type with a name, ignoring case.
func typeNamed(name string) (gguf.Type, error) {
	if strings.EqualFold(name, gguf.F64.String()) {
		return gguf.F64, nil
	}
	e, ok := ggml.Lookup(name)
	if ok && slices.Contains(Types(), e.Name) {
		return gguf.Type(e.Type), nil
	}
	return 0, fmt.Errorf("type %q is none that GGUF files are written with (%s)", name, strings.Join(Types(), ", "))
}

// chooser chooses types.
type chooser struct {
	mix    *mix
	opts   Options
	types  []gguf.Type        // of opts.TensorTypes
	byRole map[role]gguf.Type // opts.OutputType and opts.EmbeddingType, if given
	used   []bool             // by index of types: it matched
	layers int
}

// newChooser parses the types in the options.
func newChooser(m *mix, opts Options) (*chooser, error) {
	c := &chooser{mix: m, opts: opts, byRole: map[role]gguf.Type{}, used: make([]bool, len(opts.TensorTypes))}
	for _, o := range []struct {
		role role
		name string
	}{{outputRole, opts.OutputType}, {embeddingRole, opts.EmbeddingType}} {
		if o.name == "" {
			continue
		}
		t, err := typeNamed(o.name)
		if err != nil {
			return nil, err
		}
		c.byRole[o.role] = t
	}
	for _, r := range opts.TensorTypes {
		t, err := typeNamed(r.Type)
		if err != nil {
			return nil, err
		}
		c.types = append(c.types, t)
	}
	return c, nil
}

// choose returns the type of a tensor, with the reason.
func (c *chooser) choose(w *candidate) (t gguf.Type, reason string, err error) {
	asked := -1
	for i, r := range c.opts.TensorTypes {
		if slices.ContainsFunc(w.names, func(name string) bool { return name != "" && rules.MatchName(r.Pattern, name) }) {
			c.used[i], asked = true, i
		}
	}
	if asked >= 0 {
		t = c.types[asked]
		if elements, _ := t.Block(); w.k%elements != 0 {
			return 0, "", fmt.Errorf("tensor %s: rows of %d elements are not made of blocks of %d, as %v has", msg.Quote(w.Path), w.k, elements, t)
		}
		return t, "asked for", nil
	}
	own := floatTypes[w.dtype]
	if len(w.shape) == 1 && (own == gguf.F16 || own == gguf.BF16) {
		own = gguf.F32
	}
	switch {
	case !w.summed && len(w.leaves) > 0:
		return own, "not a weight of " + w.leaves[0].String(), nil
	case !w.summed:
		return own, "nothing reads it", nil
	case len(w.shape) < 2:
		return own, "a vector", nil
	case w.role == positionRole:
		return own, roleNames[positionRole], nil
	}
	t, reason = c.mix.choose(w.role, w.layer, c.layers, c.opts.Importance != nil)
	if c.opts.Pure {
		t, reason = c.mix.base, ""
	}
	if asked, ok := c.byRole[w.role]; ok {
		t, reason = asked, roleNames[w.role]
	}
	if fits := fitting(t, own, w.k); fits != t {
		reason = fmt.Sprintf("rows of %d do not fill %v", w.k, t)
		t = fits
	}
	return t, reason, nil
}

// unused returns an error if a rule for types matches no tensor.
func (c *chooser) unused(rules []TypeRule) error {
	if i := slices.Index(c.used, false); i >= 0 {
		return fmt.Errorf("no tensor and no node is called %s, which is to be %s", msg.Quote(rules[i].Pattern), rules[i].Type)
	}
	return nil
}
