package observe_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/run/observe"
	"onnxquant/internal/run/samples"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/testmodels"
)

// Channels are along any axis, and may be several elements each, or repeat. ONNX Runtime, if it is there, finds the same.
func TestExtents(t *testing.T) {
	proto := graphtext.Model(t, 13, "x:float[1,12] three:int64[3]=1,3,4", "h = Reshape(x, three)\nt = Transpose<perm=[0,2,1]>(h)\ny = Add(x, x)", "y")
	proto.IrVersion = new(int64(3)) // an initializer must be an input, too
	proto.Graph.Input = append(proto.Graph.Input, graphtext.Model(t, 13, "three:int64[3]", "y = Identity(three)", "y").Graph.Input...)
	path := modeltest.Write(t, &testmodels.Model{Proto: proto})
	data := filepath.Join(t.TempDir(), "x.npy")
	if err := modeltest.WriteSamples(data, 6, 12); err != nil {
		t.Fatal(err)
	}
	m, err := modelfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	rows, err := samples.Open(m, []string{data}, 6)
	if err != nil {
		t.Fatal(err)
	}
	list := []observe.Channels{
		{Name: "h", N: 3, Back: -2, Rank: 3}, {Name: "t", N: 3, Back: -1, Rank: 3}, {Name: "x", N: 3, Back: -1, Rank: 2, Spread: true},
		{Name: "h", N: 4, Back: -1}, {Name: "x", N: 4, Back: -1, Rank: 2},
	}
	for _, name := range []string{observe.Go, observe.Auto} {
		e, err := observe.Find(t.Context(), name, "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Extents(t.Context(), path, 13, rows, list, nil)
		if err != nil {
			t.Fatal(err)
		}
		text := func(x observe.Extent) string { return fmt.Sprintf("%.4v %.4v %.4v", x.Low, x.High, x.Square) }
		for _, same := range [][2]int{{0, 1}, {0, 2}, {3, 4}} {
			if a, b := text(got[same[0]]), text(got[same[1]]); a != b {
				t.Errorf("%s: %s and %s", e.Name(), a, b)
			}
		}
		if a := text(got[0]); a == text(got[3]) || got[0].Low[0] >= got[0].High[0] || !(got[0].Square[2] > 0) {
			t.Errorf("%s: %s", e.Name(), a)
		}
	}
}
