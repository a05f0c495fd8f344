package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"onnxquant/internal/msg"
	"onnxquant/internal/nearest"
	"onnxquant/internal/regularfile"
)

// Names maps the names of a model's tensors to names in a GGUF file. The document is a JSON object
// from names or globs to names:
//
//	{
//	  "model.embed_tokens.weight":                "token_embd.weight",
//	  "model.layers.*.self_attn.q_proj.weight":   "blk.*.attn_q.weight",
//	  "*.rotary_emb.*":                           null
//	}
//
// Each * of a name is replaced by the match of the corresponding * of the glob. Each * matches as
// little as possible, from the left. null leaves the tensor out. If several keys match, the last
// one in the document wins. A tensor that no key matches keeps its name. With nil Names all tensors
// keep their names.
type Names struct {
	source string // name of the document, for messages
	rules  []nameRule
}

type nameRule struct {
	pattern string
	pos     position
	name    []string // texts between its stars; nil: leave the tensor out
}

// maxNamesSize leaves room for 100,000 rules of 150 bytes.
const maxNamesSize = 16 << 20

// LoadNames reads a document of names at path.
func LoadNames(path string) (*Names, error) {
	source := "names " + path
	f, _, err := regularfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, msg.Cause(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxNamesSize+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, msg.Cause(err))
	}
	return parseNames(data, source)
}

// ParseNames reads a document of names. Its errors name the line and the column.
func ParseNames(data []byte) (*Names, error) { return parseNames(data, "names") }

func parseNames(data []byte, source string) (*Names, error) {
	if len(data) > maxNamesSize {
		return nil, fmt.Errorf("%s: larger than %d MiB", source, maxNamesSize>>20)
	}
	n := &Names{source: source}
	if err := n.parse(bytes.TrimPrefix(data, []byte("\ufeff"))); err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return n, nil
}

func (n *Names) parse(data []byte) error {
	doc, err := newJSONTokens(data)
	if err != nil {
		return err
	}
	if first := doc.next(); first.value != json.Delim('{') {
		return first.errorf("want an object from names to names, got %s", first.what())
	}
	for pattern, key := range doc.keys() {
		r := nameRule{pattern: pattern, pos: key.pos}
		if v := doc.next(); v.value != nil {
			name, err := v.text(msg.Quote(pattern))
			if err != nil {
				return err
			}
			r.name = strings.Split(name, "*")
			switch have, want := stars(pattern), len(r.name)-1; {
			case name == "":
				return v.errorf("%s: the name is empty; null leaves a tensor out", msg.Quote(pattern))
			case want > have:
				return v.errorf("%s has %d *, but its key only %d", msg.Quote(name), want, have)
			}
		}
		n.rules = append(n.rules, r)
	}
	return nil
}

// For returns the name in the GGUF file for a tensor of the model. It returns false if the tensor
// is left out.
func (n *Names) For(name string) (string, bool) {
	if n == nil {
		return name, true
	}
	for i := len(n.rules) - 1; i >= 0; i-- {
		r := n.rules[i]
		switch {
		case !MatchName(r.pattern, name):
			continue
		case r.name == nil:
			return "", false
		case !matchGlob(r.pattern, name): // the key is the exact name, but looks like a glob
			return strings.Join(r.name, "*"), true
		}
		var b strings.Builder
		parts := globParts(r.pattern, name)
		for i, text := range r.name {
			if i > 0 {
				b.WriteString(parts[i-1])
			}
			b.WriteString(text)
		}
		return b.String(), true
	}
	return name, true
}

// Unused returns an error if a key matches none of names, the tensors of a model.
func (n *Names) Unused(names []string) error {
	if n == nil {
		return nil
	}
keys:
	for _, r := range n.rules {
		for _, name := range names {
			if MatchName(r.pattern, name) {
				continue keys
			}
		}
		message := fmt.Sprintf("%s: %v: %s matches no tensor", n.source, r.pos, msg.Quote(r.pattern))
		if near, ok := nearest.Name(r.pattern, names); ok {
			message += "; did you mean " + msg.Quote(near) + "?"
		}
		return errors.New(message)
	}
	return nil
}

// globParts returns what each * of a glob matches. The glob must match name.
func globParts(pattern, name string) []string {
	var parts []string
	for pattern != "" {
		if pattern[0] == '*' {
			pattern = pattern[1:]
			i := 0
			for !matchGlob(pattern, name[i:]) {
				_, width := utf8.DecodeRuneInString(name[i:])
				i += width
			}
			parts = append(parts, name[:i])
			name = name[i:]
			continue
		}
		char := firstChar(name)
		used, _ := matchChar(pattern, char)
		pattern, name = pattern[used:], name[len(char):]
	}
	return parts
}

// stars counts the * of a glob that are not literal.
func stars(pattern string) int {
	n := 0
	for pattern != "" {
		used := len(firstChar(pattern))
		switch pattern[0] {
		case '*':
			n++
		case '\\':
			used += len(firstChar(pattern[1:]))
		case '[':
			if class, _ := matchClass(pattern, ""); class > 0 {
				used = class
			}
		}
		pattern = pattern[used:]
	}
	return n
}
