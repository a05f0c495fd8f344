package bodies

import (
	"regexp"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

func runStringConcat(c *op.Call) ([]*execute.Tensor, error) {
	a, b := c.In[0], c.In[1]
	if a.DType != dtype.String || b.DType != dtype.String {
		return nil, op.ErrTypes
	}
	dims, err := op.Broadcast(a.Dims, b.Dims)
	if err != nil {
		return nil, err
	}
	if err := c.Room(dtype.String, dims); err != nil {
		return nil, err
	}
	if a, err = c.Expand(a, dims); err != nil {
		return nil, err
	}
	if b, err = c.Expand(b, dims); err != nil {
		return nil, err
	}
	out := &execute.Tensor{DType: dtype.String, Dims: dims, Text: make([]string, len(a.Text))}
	for i := range out.Text {
		out.Text[i] = a.Text[i] + b.Text[i]
	}
	return op.One(out, nil)
}

// runStringSplit returns the parts of each string, filled up with empty ones, and their numbers.
func runStringSplit(c *op.Call) ([]*execute.Tensor, error) {
	t, by, most := c.In[0], c.Text("delimiter", ""), int(c.Int("maxsplit", -1))
	if t.DType != dtype.String {
		return nil, op.BadType(t)
	}
	if most >= 0 {
		most++
	}
	parts, counts, width := make([][]string, len(t.Text)), make([]int64, len(t.Text)), 0
	for i, text := range t.Text {
		switch {
		case by != "":
			if text != "" {
				parts[i] = strings.SplitN(text, by, most)
			}
		default:
			parts[i] = fields(text, most)
		}
		counts[i] = int64(len(parts[i]))
		width = max(width, len(parts[i]))
	}
	dims := append(slices.Clone(t.Dims), int64(width))
	if err := c.Room(dtype.String, dims); err != nil {
		return nil, err
	}
	out := &execute.Tensor{DType: dtype.String, Dims: dims, Text: make([]string, len(t.Text)*width)}
	for i, list := range parts {
		copy(out.Text[i*width:], list)
	}
	return []*execute.Tensor{out, op.Int64(t.Dims, counts)}, nil
}

// fields splits at white space, into at most n parts if n is not negative.
func fields(text string, n int) []string {
	var list []string
	for text = strings.TrimLeft(text, " \t\n\r\v\f"); text != ""; text = strings.TrimLeft(text, " \t\n\r\v\f") {
		end := strings.IndexAny(text, " \t\n\r\v\f")
		if end < 0 || n >= 0 && len(list) == n-1 {
			return append(list, text)
		}
		list, text = append(list, text[:end]), text[end:]
	}
	return list
}

func runRegexFullMatch(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	if t.DType != dtype.String {
		return nil, op.BadType(t)
	}
	pattern, err := regexp.Compile(`^(?:` + c.Text("pattern", "") + `)$`)
	if err != nil {
		return nil, op.Unsupported("pattern: %v", err)
	}
	y := make([]uint8, len(t.Text))
	for i, text := range t.Text {
		if pattern.MatchString(text) {
			y[i] = 1
		}
	}
	return op.One(execute.Made(dtype.Bool, t.Dims, y), nil)
}

// runStringNormalizer drops stop words and changes the case.
func runStringNormalizer(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	if t.DType != dtype.String || len(t.Dims) < 1 || len(t.Dims) > 2 || len(t.Dims) == 2 && t.Dims[0] != 1 {
		return nil, op.Unsupported("dims %v of type %v", t.Dims, t.DType)
	}
	change := map[string]func(string) string{"LOWER": strings.ToLower, "UPPER": strings.ToUpper}[c.Text("case_change_action", "NONE")]
	if change == nil {
		change = func(s string) string { return s }
	}
	compared := func(s string) string { return s }
	if !c.Is("is_case_sensitive") {
		compared = strings.ToLower
	}
	stop := map[string]bool{}
	if a := c.Attribute("stopwords"); a != nil {
		for _, word := range a.GetStrings() {
			stop[compared(string(word))] = true
		}
	}
	kept := []string{}
	for _, word := range t.Text {
		if !stop[compared(word)] {
			kept = append(kept, change(word))
		}
	}
	if len(kept) == 0 {
		kept = []string{""}
	}
	dims := slices.Clone(t.Dims)
	dims[len(dims)-1] = int64(len(kept))
	return op.One(&execute.Tensor{DType: dtype.String, Dims: dims, Text: kept}, nil)
}
