package summary

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onnxquant/internal/cli"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

func handMade() *onnxq.Report {
	big := onnxq.TensorPlan{Name: "layers.0/up\x1b[2J", DType: "FLOAT16", Shape: []int64{4096, 11008}, Bytes: 90177536,
		Decision: onnxq.Quantize, Format: "int4", Axis: 0, Block: 128, OutBytes: 23248896}
	head := onnxq.TensorPlan{Name: "head", DType: "FLOAT", Shape: []int64{64, 10}, Bytes: 2560,
		Decision: onnxq.Quantize, Format: "int8", Axis: 1, Block: spec.PerChannel, OutBytes: 896}
	bias := onnxq.TensorPlan{Name: strings.Repeat("b", 100), DType: "FLOAT", Shape: nil, Bytes: 4,
		Decision: onnxq.Keep, Reason: "too\nsmall", OutBytes: 4}
	return &onnxq.Report{
		Plan: &onnxq.Plan{Tensors: []onnxq.TensorPlan{big, bias, head},
			OpsetBefore: 17, OpsetAfter: 21, IRBefore: 8, IRAfter: 10, InBytes: 90 << 20, OutBytes: 23 << 20, Coverage: 0.9999, BitsPerWeight: 4.127},
		Tensors:  []onnxq.TensorReport{{TensorPlan: big, MaxError: 0.0123456, SQNR: 18.25}, {TensorPlan: head, SQNR: 999}},
		Verified: true, Output: "out.onnx", Data: "out.onnx.data",
	}
}

func TestPrintPlan(t *testing.T) {
	var got bytes.Buffer
	Plan(&got, handMade().Plan, nil)
	want := strings.ReplaceAll(`NAME                                                              SHAPE       DTYPE    DECISION  FORMAT  AXIS  BLOCK    BYTES             REASON
layers.0/up\x1b[2J                                                4096x11008  FLOAT16  quantize  int4    0     128      86 MiB -> 22 MiB  -
BBBB…BBB  scalar      FLOAT    keep      -       -     -        4 B               too\nsmall
head                                                              64x10       FLOAT    quantize  int8    1     channel  2.5 KiB -> 896 B  -

quantized  2 of 3 float tensors, 100.0 % of their bytes: 1 int4, 1 int8
kept       1 too\nsmall
weights    4.127 bits each, scales included
size       90 MiB -> 23 MiB, 3.9 times smaller
opset      17 -> 21
IR         8 -> 10
`, "BBBB…BBB", strings.Repeat("b", 32)+"…"+strings.Repeat("b", 31))
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}

func TestPrintSummary(t *testing.T) {
	var got bytes.Buffer
	Conversion(&got, handMade(), 1500*time.Millisecond, "1.02 ± 0.01 times the CPU time of IN in ONNX Runtime 1.31.1", nil)
	want := `quantized  2 of 3 float tensors, 100.0 % of their bytes: 1 int4, 1 int8
kept       1 too\nsmall
weights    4.127 bits each, scales included
size       90 MiB -> 23 MiB, 3.9 times smaller
opset      17 -> 21
IR         8 -> 10
worst      layers.0/up\x1b[2J: SQNR 18.2 dB, error up to 0.0123
           head: SQNR exact, error up to 0
a run      takes 1.02 ± 0.01 times the CPU time of IN in ONNX Runtime 1.31.1
time       1.50 s, 60 MiB/s
written    out.onnx and out.onnx.data, read back and checked
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}

func TestPrintTensors(t *testing.T) {
	var got bytes.Buffer
	Tensors(&got, handMade())
	lines := strings.Split(got.String(), "\n")
	for i, want := range []string{"SQNR     LARGEST ERROR", "18.2 dB  0.0123", `too\nsmall`, "exact  0"} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d: %q does not end in %q", i, lines[i], want)
		}
	}
}

// Codes that data found are not the nearest ones: the summary says that larger errors of weights are meant.
func TestWorst(t *testing.T) {
	const text = "codes by data have larger errors"
	for _, c := range []struct {
		calibration *onnxq.Calibrated
		want        bool
	}{
		{nil, false},
		{&onnxq.Calibrated{}, false},
		{&onnxq.Calibrated{Layers: 2, Lost: 2}, false},
		{&onnxq.Calibrated{Layers: 2, Refused: true}, false},
		{&onnxq.Calibrated{Layers: 2, Lost: 1}, true},
	} {
		facts := worstFacts(&onnxq.Report{Calibration: c.calibration, Tensors: []onnxq.TensorReport{{SQNR: 17}}})
		if got := len(facts) == 2 && strings.HasPrefix(facts[1].Text, text); got != c.want {
			t.Errorf("%+v: %+v", c.calibration, facts)
		}
	}
}

func TestCalibrationFacts(t *testing.T) {
	c := onnxq.Calibrated{Layers: 2, Error: 0.0001, MSE: 0.0004, Output: 0.0004, OutputMSE: 0.0009, Samples: 12, HeldOut: true}
	few, none := c, c
	few.Samples, few.HeldOut = 1, false
	none.Samples = 0
	for want, c := range map[string]onnxq.Calibrated{
		"error of the model's outputs on 12 held-out samples 2 %, with mse 3 %":                       c,
		"error of the model's outputs on 1 sample, too few to hold whole ones out, 2 %, with mse 3 %": few,
		"": none,
	} {
		facts := calibrationFacts(&c)
		on := "held-out samples"
		if !c.HeldOut {
			on = "held-out rows of the samples"
		}
		if facts[0].Text != "2 layers, error of their outputs on "+on+" 1 %, with mse 2 %" {
			t.Errorf("%q", facts[0].Text)
		}
		if want == "" && len(facts) != 1 || want != "" && facts[1].Text != want {
			t.Errorf("%q, want %q", facts[1:], want)
		}
	}
}

// The first line says that a model is of little use, if calibration found that.
func TestVerdictFacts(t *testing.T) {
	poor := &onnxq.Calibrated{Output: 0.5, Samples: 12, HeldOut: true, Poor: true}
	if facts := Verdict(poor); len(facts) != 1 || !strings.HasPrefix(facts[0].Text, "poor: SQNR 3.0 dB of the model's outputs on 12 held-out samples is below 6 dB") {
		t.Errorf("%q", facts)
	}
	if Verdict(nil) != nil || Verdict(&onnxq.Calibrated{Output: 0.01, Samples: 12}) != nil {
		t.Error("a model that is not poor has a verdict")
	}
}

// Nodes that stay in float32 for one reason are counted together, whatever the names of the values that they
// read; a value that all of them read is named.
func TestHalfFacts(t *testing.T) {
	h := &onnxq.HalfPrecision{Type: spec.Float16, Tensors: 2, Kept: []onnxq.FloatNode{
		{Operator: "Add", Reason: `reads "a", which may hold values beyond float16`},
		{Operator: "Add", Reason: `reads "b \" c", which may hold values beyond float16`},
		{Operator: "Slice", Reason: `reads "mask", which holds values beyond the range of float16`},
		{Operator: "Slice", Reason: `reads "mask", which holds values beyond the range of float16`},
	}}
	want := []cli.Fact{
		{Label: "float16", Text: "2 tensors, 0 new Casts"},
		{Label: "float32", Text: "2 Add reads a value, which may hold values beyond float16"},
		{Label: "", Text: `2 Slice reads "mask", which holds values beyond the range of float16`},
	}
	if got := halfFacts(h); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
