package target

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"onnxquant/spec"
)

// lostKernels lists the operators that a runtime runs at some opset but not at the newest.
func lostKernels(e *Engine) string {
	if e.kernels == nil {
		return ""
	}
	lost := map[int64][]string{} // by the first opset that has no kernel
	k := e.kernels()
	for _, op := range slices.Sorted(maps.Keys(k)) {
		if len(k[op]) == 0 || op == "Scatter" || op == "Upsample" { // ONNX replaced these
			continue
		}
		if last := k[op][len(k[op])-1].last; last < e.Opset {
			lost[last+1] = append(lost[last+1], op)
		}
	}
	var from []string
	for _, opset := range slices.Sorted(maps.Keys(lost)) {
		from = append(from, fmt.Sprintf("from %d on %s", opset, strings.Join(lost[opset], ", ")))
	}
	return "At newer opsets it has no kernels for some operators, and refuses models with them: " + strings.Join(from, "; ") + "."
}

// The table of kernels agrees with facts known about ONNX Runtime.
func TestKernels(t *testing.T) {
	k, err := parseKernels(ortKernels)
	if err != nil {
		t.Fatal(err)
	}
	if len(k) < 150 {
		t.Errorf("%d operators", len(k))
	}
	ort := Of(spec.ORT)
	version := strings.Fields(strings.TrimPrefix(ort.Name, "ONNX Runtime "))[0]
	if head, _, _ := strings.Cut(ortKernels, "\n"); !strings.Contains(head, "ONNX Runtime "+version+".") {
		t.Errorf("%q is not of %s", head, ort.Name)
	}
	for _, c := range []struct {
		op       string
		from, to int64
		want     int64
	}{
		{"MatMul", 7, 26, 0},
		{"Bernoulli", 15, 25, 22},
		{"Bernoulli", 15, 21, 0},
		{"Bernoulli", 23, 25, 0}, // it did not run before
		{"RandomNormal", 5, 25, 22},
		{"Swish", 24, 25, 25},
		{"DequantizeLinear", 21, 27, 0},
		{"DequantizeLinear", 27, 28, 28}, // of ONNX Runtime 1.32
		{"ImageDecoder", 20, 25, 0},
		{"Unheard", 7, 25, 0},
	} {
		if got := ort.Loses(c.op, c.from, c.to); got != c.want {
			t.Errorf("%s from opset %d to %d: lost at %d, want %d", c.op, c.from, c.to, got, c.want)
		}
	}
	if at := Of(spec.OpenVINO).Loses("RoiAlign", 16, 25); at != 0 {
		t.Errorf("OpenVINO has no table, but loses RoiAlign at %d", at)
	}
	for op, want := range map[string]bool{"MatMul": false, "Add": false, "Gather": true, "Unheard": true} {
		if got := ort.RunsBFloat16(op); got != want {
			t.Errorf("%s with bfloat16: %t", op, got)
		}
	}
	if !Of(spec.TensorRT).RunsBFloat16("MatMul") {
		t.Error("TensorRT has no table, but no MatMul with bfloat16")
	}
	for _, wrong := range []string{"Abs x-3", "Abs 7-", "Abs 7"} {
		if _, err := parseKernels(wrong); err == nil {
			t.Errorf("%q: no error", wrong)
		}
	}
}
