package diff

import (
	"cmp"
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"onnxquant/internal/modelfile"
	"onnxquant/onnxq"
)

// Kind is a kind of change.
type Kind string

const (
	Added   Kind = "added"   // only in the second model
	Removed Kind = "removed" // only in the first model
	Changed Kind = "changed" // in both models, with different contents
	Moved   Kind = "moved"   // the same parts in another order
)

// Change is one difference between two models.
type Change struct {
	Kind Kind `json:"kind"`

	// Where names the changed part, outermost first, such as
	//
	//	node "m0" (MatMul): attribute "then_branch": node "y" (Relu)
	//
	// Nodes are named by their first output, all else by name or key.
	Where string `json:"where"`

	Field string `json:"field,omitempty"` // field of the part, if only that changed
	A     string `json:"a,omitempty"`     // value in the first model, shortened
	B     string `json:"b,omitempty"`     // value in the second model, shortened

	// Contents: elements of a tensor changed, but not its name, type and shape.
	Contents bool `json:"contents,omitempty"`
}

// String describes the change in one line: a sign (+ - ~) and the changed part.
func (c Change) String() string {
	sign := map[Kind]string{Added: "+ ", Removed: "- ", Changed: "~ ", Moved: "~ "}[c.Kind]
	text := c.Where
	if c.Field != "" {
		text += ": " + c.Field
	}
	switch {
	case c.Contents:
		text += " of " + c.A + " " + c.B
	case c.A != "" && c.B != "":
		text += ": " + c.A + " -> " + c.B
	case c.A+c.B != "":
		text += ": " + c.A + c.B
	}
	return sign + text
}

// Count is the number of parts in each of two models.
type Count struct {
	A     int `json:"a"`
	B     int `json:"b"`
	Equal int `json:"equal"` // the same in both
}

// Difference describes how two models differ.
type Difference struct {
	Equal        bool  `json:"equal"`
	Nodes        Count `json:"nodes"` // of the main graph
	Initializers Count `json:"initializers"`
	Inputs       Count `json:"inputs"`
	Outputs      Count `json:"outputs"`

	Changes []Change `json:"changes"`
}

// Models compares the structure of two models and the contents of their tensors.
//
// Nodes are matched by their first output; initializers, inputs, outputs, attributes,
// metadata and functions by name; opsets by domain. All fields are compared, including
// unknown ones, but not the record of how a model was made. It does not matter how contents
// are stored: in raw_data, in a typed field or in an external file. Contents are compared
// piece by piece, in little memory.
//
// Progress, if not nil, is called with the bytes of a that were compared, and their total.
func Models(ctx context.Context, a, b *onnxq.Model, progress func(done, total int64)) (*Difference, error) {
	if err := cmp.Or(a.Ready(ctx), b.Ready(ctx)); err != nil {
		return nil, err
	}
	d := &differ{ctx: ctx, a: a.Graph().File, b: b.Graph().File, progress: progress, result: &Difference{Changes: []Change{}}}
	if err := d.message("", d.a.Proto.ProtoReflect(), d.b.Proto.ProtoReflect()); err != nil {
		return nil, err
	}
	d.result.Equal = len(d.result.Changes) == 0
	return d.result, nil
}

// Messages compares message x of model a with message y of model b, which has the same type. It
// compares the named fields, or all fields if none is named. Where of each change begins with where.
func Messages(ctx context.Context, where string, a, b *modelfile.Model, x, y proto.Message, fields ...protoreflect.Name) ([]Change, error) {
	d := &differ{ctx: ctx, a: a, b: b, result: &Difference{}}
	p, q := x.ProtoReflect(), y.ProtoReflect()
	if len(fields) == 0 {
		err := d.message(where, p, q)
		return d.result.Changes, err
	}
	for _, name := range fields {
		if err := d.field(where, p.Descriptor().Fields().ByName(name), p, q); err != nil {
			return nil, err
		}
	}
	return d.result.Changes, nil
}
