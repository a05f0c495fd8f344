//go:build onnxgo

package evaluate

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/owulveryck/onnx-go"
	"github.com/owulveryck/onnx-go/backend/x/gorgonnx"
	"gorgonia.org/tensor"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/synth"
	"onnxquant/testmodels"
)

// near fails where outputs differ by more than rounding.
func near(t *testing.T, name string, got, want []*execute.Tensor) {
	t.Helper()
	c, err := execute.Compare([][]*execute.Tensor{want}, [][]*execute.Tensor{got})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, o := range c {
		if o.Relative > 1e-5 || o.Broken > 0 {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// onnx-go's arithmetic gives what ours gives, for every test model.
func TestOnnxGo(t *testing.T) {
	second, err := OnnxGo()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range testmodels.Kinds() {
		m, err := testmodels.Build(kind.Name, 1)
		if err != nil {
			t.Fatal(err)
		}
		path := written(t, m)
		in, want, err := run(t, path, synth.Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		got, err := second.Run(context.Background(), path, in)
		if kind.Name == "nan" {
			if !errors.Is(err, execute.ErrUnsupported) {
				t.Errorf("%s: error %v", kind.Name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", kind.Name, err)
			continue
		}
		near(t, kind.Name, got, want)
	}
}

// onnx-go alone, which reads and runs the whole model, gives what our engine gives. It knows
// neither types but float32, external data, subgraphs nor convolutions along one axis, and
// multiplies no zero by NaN.
func TestOnnxGoAlone(t *testing.T) {
	beyond := strings.Fields("conv embedding tied if float16 bfloat16 float64 external nan")
	for _, kind := range testmodels.Kinds() {
		if slices.Contains(beyond, kind.Name) {
			continue
		}
		m, err := testmodels.Build(kind.Name, 1)
		if err != nil {
			t.Fatal(err)
		}
		path := written(t, m)
		in, want, err := run(t, path, synth.Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		got, err := alone(path, in)
		if err != nil {
			t.Errorf("%s: %v", kind.Name, err)
			continue
		}
		near(t, kind.Name, got, want)
	}
}

func alone(path string, in []*execute.Tensor) ([]*execute.Tensor, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	backend := gorgonnx.NewGraph()
	m := onnx.NewModel(backend)
	if err := m.UnmarshalBinary(data); err != nil {
		return nil, err
	}
	for i, t := range in {
		if err := m.SetInput(i, tensor.New(tensor.WithShape(ints(t.Dims)...), tensor.WithBacking(numbers(t)))); err != nil {
			return nil, err
		}
	}
	if err := backend.Run(); err != nil {
		return nil, err
	}
	results, err := m.GetOutputTensors()
	if err != nil {
		return nil, err
	}
	var outputs []*execute.Tensor
	for _, r := range results {
		t, err := execute.FromFloat32s(in[0].DType, int64s(r.Shape()), r.Data().([]float32))
		if err != nil {
			return nil, err
		}
		outputs = append(outputs, t)
	}
	return outputs, nil
}

func ints(dims []int64) []int {
	var list []int
	for _, d := range dims {
		list = append(list, int(d))
	}
	return list
}

func int64s(dims []int) []int64 {
	var list []int64
	for _, d := range dims {
		list = append(list, int64(d))
	}
	return list
}
