package graph

import "regexp"

// numbered matches names that exporters make of numbers, such as onnx::MatMul_540, val_12 and 87: they say
// nothing about a weight, and change from export to export.
var numbered = regexp.MustCompile(`^(onnx::\w+_\d+|_?v_?\d+|(val|arg|param|tensor|const|constant|initializer|const_fold_opt_)_?\d+|Parameter\d+|p?_?\d+)(_\w?transposed)?$`)

// Numbered reports whether a name is a number of an exporter.
func Numbered(name string) bool { return numbered.MatchString(name) }

// Reader returns the name of a node that reads a value, if its own name is a number of an exporter. It is
// "" if the value has a name that says more, or no reader has a name.
func (v *Value) Reader() string {
	if !Numbered(v.Name) {
		return ""
	}
	reader := ""
	for _, u := range v.Uses {
		name := u.Node.GetName()
		switch {
		case name == "":
		case !passing[u.Node.GetOpType()]:
			return name
		case reader == "":
			reader = name
		}
	}
	return reader
}

// passing are operators that hand on a weight.
var passing = map[string]bool{"Identity": true, "Cast": true, "Transpose": true, "Reshape": true, "QuantizeLinear": true, "DequantizeLinear": true}
