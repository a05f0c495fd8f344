package fold_test

import (
	"fmt"
	"testing"

	"onnxquant/internal/fold"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/rules"
	"onnxquant/spec"
)

type (
	nodes   = []*onnxpb.NodeProto
	tensors = []*onnxpb.TensorProto
)

func model(t testing.TB, stored tensors, list ...*onnxpb.NodeProto) *onnxq.Model {
	return modeltest.Open(t, modeltest.Write(t, modeltest.Model(stored, list)))
}

// halves is a weight cut in two, each with a MatMul.
func halves(t testing.TB) *onnxq.Model {
	split := modeltest.Node("Split", "a", "w", modeltest.IntAttr("axis", 1))
	split.Output = append(split.Output, "b")
	return model(t, tensors{modeltest.Floats("w", 64, 64)}, split,
		modeltest.Node("MatMul", "p", "x a"), modeltest.Node("MatMul", "q", "x b"), modeltest.Node("Add", "y", "p q"))
}

func entries(t testing.TB, list ...rules.PrecisionEntry) *rules.Precision {
	t.Helper()
	p, err := rules.NewPrecision(list...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What options say of a whole holds for its parts, unless they say something else of a part.
func TestNamesOfWholes(t *testing.T) {
	float, int8 := spec.Float, spec.Format("int8")
	for name, c := range map[string]struct {
		opts onnxq.Options
		want string
	}{
		"as it is":  {onnxq.Options{}, "a int4, b int4, "},
		"excluded":  {onnxq.Options{Exclude: []string{"w"}}, "w keep, "},
		"a part":    {onnxq.Options{Exclude: []string{"a"}}, "a keep, b int4, "},
		"its entry": {onnxq.Options{Precision: entries(t, rules.PrecisionEntry{Pattern: "w", Override: spec.Override{Format: &int8}})}, "a int8, b int8, "},
		"both":      {onnxq.Options{Precision: entries(t, rules.PrecisionEntry{Pattern: "w", Override: spec.Override{Format: &int8}}, rules.PrecisionEntry{Pattern: "b", Override: spec.Override{Format: &float}})}, "a int8, b keep, "},
	} {
		p, err := halves(t).Plan(c.opts)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := ""
		for _, tensor := range p.Tensors {
			what := string(tensor.Format)
			if tensor.Decision == onnxq.Keep {
				what = "keep"
			}
			got += fmt.Sprintf("%s %s, ", tensor.Name, what)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Nodes that only change the shape are folded by themselves if that is asked for, unless the parts are larger.
func TestReshapes(t *testing.T) {
	flat := modeltest.Node("Flatten", "a", "w")
	for name, c := range map[string]struct {
		m        *onnxq.Model
		reshapes bool
		want     int
	}{
		"asked for":     {model(t, tensors{modeltest.Floats("w", 64, 64)}, flat, modeltest.Node("MatMul", "y", "x a")), true, 1},
		"not asked for": {model(t, tensors{modeltest.Floats("w", 64, 64)}, flat, modeltest.Node("MatMul", "y", "x a")), false, 0},
		"behind another": {model(t, tensors{modeltest.Floats("w", 64, 64)}, flat, modeltest.Node("Identity", "b", "a"),
			modeltest.Node("MatMul", "y", "x b")), true, 1},
		"read as it is, too": {model(t, tensors{modeltest.Floats("w", 64, 64)}, flat, modeltest.Node("MatMul", "p", "x a"),
			modeltest.Node("MatMul", "q", "x w"), modeltest.Node("Add", "y", "p q")), true, 0},
		"of an activation": {model(t, nil, modeltest.Node("Flatten", "y", "x")), true, 0},
	} {
		groups := fold.Find(c.m.Graph(), c.reshapes)
		if len(groups) != c.want {
			t.Errorf("%s: %d groups, want %d", name, len(groups), c.want)
		}
		for _, g := range groups {
			if len(g.Parts) != 1 || len(g.Wholes) != 1 {
				t.Errorf("%s: %d parts of %d wholes", name, len(g.Parts), len(g.Wholes))
			}
		}
	}
}

// Joins of joins, of which each is twice as long, neither take exponential time nor are folded.
func TestDoubled(t *testing.T) {
	var list nodes
	v := "w"
	for i := range 60 {
		next := fmt.Sprintf("v%d", i)
		list = append(list, modeltest.Node("Concat", next, v+" "+v, modeltest.IntAttr("axis", 0)))
		v = next
	}
	m := model(t, tensors{modeltest.Floats("w", 8, 8)}, append(list, modeltest.Node("MatMul", "y", "x "+v))...)
	if n := len(fold.Find(m.Graph(), false)); n != 0 {
		t.Errorf("%d groups, want none", n)
	}
}

// Nodes that say that they have more outputs than they can have are left alone.
func TestMoreOutputs(t *testing.T) {
	for _, operator := range []string{"Identity", "Transpose", "Slice", "Concat"} {
		for _, outputs := range [][]string{{"v", ""}, {"", "v"}, {"v", "u"}} {
			inputs := "w"
			if operator == "Slice" {
				inputs = "w starts ends"
			}
			odd := modeltest.Node(operator, "v", inputs, modeltest.IntAttr("axis", 0))
			odd.Output = outputs
			split := modeltest.Node("Split", "a", "v", modeltest.IntAttr("axis", 1))
			split.Output = append(split.Output, "b")
			m := model(t, tensors{modeltest.Floats("w", 64, 64), modeltest.Integers("starts", 0), modeltest.Integers("ends", 64)}, odd, split,
				modeltest.Node("MatMul", "p", "x a"), modeltest.Node("MatMul", "q", "x b"), modeltest.Node("Add", "y", "p q"))
			if n := len(fold.Find(m.Graph(), false)); n != 0 {
				t.Errorf("%s with outputs %q: %d groups, want none", operator, outputs, n)
			}
		}
	}
}

// Very many parts of one tensor, and of as many tensors, take its place, in time in proportion.
func TestManyParts(t *testing.T) {
	const n = 5000
	w := modeltest.Floats("w", 2*n, 32)
	stored := tensors{w, modeltest.Integers("axis", 0)}
	var list nodes
	for i := range n {
		from, to, part, own := fmt.Sprintf("from%d", i), fmt.Sprintf("to%d", i), fmt.Sprintf("part%d", i), fmt.Sprintf("own%d", i)
		stored = append(stored, modeltest.Integers(from, int64(2*i)), modeltest.Integers(to, int64(2*i+2)), modeltest.Floats(own, 2, 2))
		list = append(list, modeltest.Node("Slice", part, fmt.Sprintf("w %s %s axis", from, to)), modeltest.Node("Gather", "g"+part, part+" i"),
			modeltest.Node("Concat", "c"+own, own+" "+own+"b", modeltest.IntAttr("axis", 1)), modeltest.Node("Gather", "g"+own, "c"+own+" i"))
		stored = append(stored, modeltest.Floats(own+"b", 2, 2))
	}
	x := model(t, stored, append(list, modeltest.Node("Relu", "y", "x"))...).Graph()
	groups := fold.Find(x, false)
	folded, err := fold.Fold(x, groups)
	if err != nil {
		t.Fatal(err)
	}
	if len(groups) != n+1 || len(folded.Values) != 2*n {
		t.Errorf("%d groups make %d stored tensors, want %d and %d", len(groups), len(folded.Values), n+1, 2*n)
	}
}
