package calibrate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/calib"
	"onnxquant/internal/testing/modeltest"
)

// Values that nodes compute from constants have ranges, too; constants themselves have none,
// nor have shapes and sequences.
func TestValues(t *testing.T) {
	m := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 8, 8)}, modeltest.Nodes{
		modeltest.ConstantNode("c", modeltest.Floats("c", 8)),
		modeltest.Node("Mul", "y", "h transposed"), // before what it reads
		modeltest.Node("Transpose", "transposed", "w"),
		modeltest.Node("Add", "h", "x c"),
		modeltest.Node("Shape", "s", "h"),
		modeltest.Node("SequenceConstruct", "q", "h"),
		modeltest.Node("SequenceAt", "a", "q zero"),
	})
	m.Proto.Graph.Input = m.Proto.Graph.Input[:1]
	names, constants, err := values(m.Proto.Graph)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(names, []string{"x", "h", "y", "a"}) || !slices.Equal(constants, []string{"transposed"}) {
		t.Errorf("%q, %q", names, constants)
	}
}

// A warning tells what of ONNX Runtime was not found, unless pure Go was asked for.
func TestSlow(t *testing.T) {
	t.Setenv("PATH", "") // the test has no onnxquant-ort beside it
	in, _, remove := modeltest.Example("mlp")
	defer remove()
	header := "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 64), }\n"
	data := filepath.Join(filepath.Dir(in), "x.npy")
	if err := os.WriteFile(data, []byte("\x93NUMPY\x01\x00"+string(rune(len(header)))+"\x00"+header+string(make([]byte, 64*4))), 0o600); err != nil {
		t.Fatal(err)
	}
	method, err := calib.ParseMethod("minmax")
	if err != nil {
		t.Fatal(err)
	}
	for engine, want := range map[string]bool{"auto": true, "go": false} {
		r, err := Ranges(t.Context(), in, Options{Data: []string{data}, Engine: engine, Method: method, Scheme: calib.Scheme{Bits: 8}})
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "onnxquant-ort") && strings.Contains(w, "pure Go") })
		if got != want {
			t.Errorf("%s: %q", engine, r.Warnings)
		}
	}
}
