// Package optypes tells which element types the operators take and give: those of ONNX, at
// every opset, and ONNX Runtime's of domain com.microsoft.
//
// It is a table, optypes.txt, that make optypes writes from the schemas of the onnx package
// and of ONNX Runtime. [Of] returns an operator's [Signature], which is immutable and shared.
package optypes

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"onnxquant/formats/dtype"
)

// Signature is the types of an operator's inputs and outputs, from one opset on.
type Signature struct {
	Since     int64
	Inputs    []Param
	Outputs   []Param
	Variables map[string]Floats // of the types that inputs and outputs share
}

// Param is the type of an input or output: a variable, or one type.
type Param struct {
	Variable string      // name of the variable; "" if there is one type
	Type     dtype.DType // that type; Other if it is not of ONNX's floats
	Repeats  bool        // the last parameter may stand for any number
	Mixed    bool        // each of them has a type of its own
}

// Other stands for every type but float16, bfloat16, float32 and float64.
const Other dtype.DType = -1

// Floats says which floating point types a variable may be.
type Floats struct {
	Float16, BFloat16, Float32, Float64 bool
	Sequence                            bool // or a sequence or optional
}

// Has reports whether a floating point type is among them.
func (f Floats) Has(t dtype.DType) bool {
	switch t {
	case dtype.Float16:
		return f.Float16
	case dtype.BFloat16:
		return f.BFloat16
	case dtype.Float32:
		return f.Float32
	case dtype.Float64:
		return f.Float64
	}
	return false
}

// Input and Output return the parameter at a position, false if the operator has none there.
func (s *Signature) Input(i int) (Param, bool)  { return at(s.Inputs, i) }
func (s *Signature) Output(i int) (Param, bool) { return at(s.Outputs, i) }

func at(params []Param, i int) (Param, bool) {
	if i < len(params) {
		return params[i], true
	}
	if n := len(params); n > 0 && params[n-1].Repeats {
		return params[n-1], true
	}
	return Param{}, false
}

// Allows returns the types that a parameter may have.
func (s *Signature) Allows(p Param) Floats {
	if p.Variable != "" {
		return s.Variables[p.Variable]
	}
	return Floats{
		Float16: p.Type == dtype.Float16, BFloat16: p.Type == dtype.BFloat16,
		Float32: p.Type == dtype.Float32, Float64: p.Type == dtype.Float64,
	}
}

// Of returns the signature of an operator at a version of its domain, or nil if the operator
// is not known.
func Of(domain, operator string, version int64) *Signature {
	var found *Signature
	for _, s := range All(domain, operator) {
		if s.Since <= version {
			found = s
		}
	}
	return found
}

// All returns the signatures of an operator at all versions of its domain, in ascending order.
func All(domain, operator string) []*Signature {
	if domain == "" || domain == "ai.onnx" {
		domain = "onnx"
	}
	return table()[domain+" "+operator]
}

// Operators lists the operators, those of other domains than ONNX's with their domain, such
// as com.microsoft.Attention.
func Operators() (names []string) {
	for key := range table() {
		domain, operator, _ := strings.Cut(key, " ")
		if domain != "onnx" {
			operator = domain + "." + operator
		}
		names = append(names, operator)
	}
	slices.Sort(names)
	return names
}

//go:embed optypes.txt
var text string

// table has the signatures by domain and operator, in ascending order of versions.
var table = sync.OnceValue(func() map[string][]*Signature {
	all := map[string][]*Signature{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		since, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			panic(fmt.Sprintf("optypes.txt: %s: %v", line, err))
		}
		s := &Signature{Since: since, Inputs: params(f[3]), Outputs: params(f[5]), Variables: map[string]Floats{}}
		for _, v := range f[6:] {
			name, letters, _ := strings.Cut(v, "=")
			s.Variables[name] = floats(letters)
		}
		key := f[0] + " " + f[1]
		all[key] = append(all[key], s)
	}
	return all
})

func params(text string) (list []Param) {
	if text == "-" {
		return nil
	}
	for _, word := range strings.Split(text, ",") {
		typ := strings.TrimRight(word, "*")
		p := Param{Repeats: typ != word, Mixed: strings.HasSuffix(word, "**")}
		if name, ok := strings.CutPrefix(typ, "$"); ok {
			p.Variable = name
		} else {
			p.Type = concrete(typ)
		}
		list = append(list, p)
	}
	return list
}

func concrete(name string) dtype.DType {
	switch name {
	case "float16":
		return dtype.Float16
	case "bfloat16":
		return dtype.BFloat16
	case "float":
		return dtype.Float32
	case "double":
		return dtype.Float64
	}
	return Other
}

func floats(letters string) Floats {
	has := func(l string) bool { return strings.Contains(letters, l) }
	return Floats{Float16: has("h"), BFloat16: has("b"), Float32: has("f"), Float64: has("d"), Sequence: has("s")}
}
