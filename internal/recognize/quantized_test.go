package recognize_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/recognize"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// Every form that this program writes is recognized, and decodes to values whose
// errors are those that were measured when it was written.
func TestOwnFormsAreRecognized(t *testing.T) {
	numbers := []string{"odd", "conv", "float16", "bfloat16", "float64"} // in every format
	for _, kind := range testmodels.Kinds() {
		for _, target := range []spec.Target{spec.Portable, spec.ORT} {
			for _, format := range spec.Formats()[1:] {
				if format != spec.Uint4 && !slices.Contains(numbers, kind.Name) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", kind.Name, target, format), func(t *testing.T) {
					in := modeltest.Build(t, kind.Name)
					out := filepath.Join(t.TempDir(), "out.onnx")
					r, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Format: format, ConvFormat: format, Target: target, Style: spec.DQ, Ops: []string{"all"}, Block: blockFor(format), NoVerify: true})
					if err != nil {
						t.Fatal(err)
					}
					before, after := modeltest.Open(t, in), modeltest.Open(t, out)
					found := map[string]*recognize.Weight{}
					for _, w := range recognize.Weights(after.Graph()) {
						found[w.Name] = w
					}
					if len(found) != len(r.Tensors) {
						t.Errorf("%d weights, want %d", len(found), len(r.Tensors))
					}
					for _, want := range r.Tensors {
						w := found[want.Name]
						if w == nil {
							t.Fatalf("%s is not found", want.Name)
						}
						modeltest.CheckErrors(t, modeltest.Numbers(t, before, want.Name), w, want)
						if w.Bits != want.Format.Bits() || w.DType != want.DType || fmt.Sprint(w.Shape) != fmt.Sprint(want.Shape) || w.Bytes != want.OutBytes {
							t.Errorf("%v of %d bits, %s, %d bytes, want %+v", w, w.Bits, w.DType, w.Bytes, want)
						}
					}
				})
			}
		}
	}
}

// blockFor is a block size that does not divide everything.
func blockFor(f spec.Format) int {
	if f.Traits().Only {
		return 0
	}
	return 16
}

// Models that are not quantized have no quantized weights.
func TestFloatModelsHaveNoQuantizedWeights(t *testing.T) {
	for _, kind := range testmodels.Kinds() {
		for _, w := range recognize.Weights(modeltest.Open(t, modeltest.Build(t, kind.Name)).Graph()) {
			t.Errorf("%s: %v", kind.Name, w)
		}
	}
}

// What cannot be folded, as most values of most models, is not remembered.
func TestValuesOfOtherOperators(t *testing.T) {
	const n = 1000
	list := []*onnxpb.NodeProto{modeltest.Node("Neg", "v0", "x")}
	for i := range n {
		list = append(list, modeltest.Node("Neg", fmt.Sprint("v", i+1), fmt.Sprint("v", i)))
	}
	list[n].Output[0] = "y"
	x := modeltest.Open(t, modeltest.Write(t, modeltest.Model(nil, list))).Graph()
	if allocations := testing.AllocsPerRun(3, func() { recognize.Parts(x) }); allocations > 20 {
		t.Errorf("%v allocations for %d nodes", allocations, n)
	}
}
