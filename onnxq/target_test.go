package onnxq

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/target"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
)

var update = flag.Bool("update", false, "write the tables of docs/targets.md")

// docs/targets.md holds the tables of targets and of hazards in words. -update
// writes them there.
func TestTargetsDocument(t *testing.T) {
	var targets, hazards strings.Builder
	for _, e := range target.Engines {
		describeEngine(&targets, e)
	}
	hazards.WriteString("| runtime | effect | what | check |\n|---|---|---|---|\n")
	for _, c := range checks {
		fmt.Fprintf(&hazards, "| %s | %s | %s | %s |\n", c.runtime, c.effect, c.text, c.name)
	}
	path := filepath.Join("..", "docs", "targets.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	made := string(text)
	for source, table := range map[string]string{"target.go": targets.String(), "hazards.go": hazards.String()} {
		begin, end := "<!-- from the table in onnxq/"+source+" -->\n", "<!-- end of the table -->\n"
		before, rest, ok := strings.Cut(made, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no place for the table in %s", path, source)
		}
		made = before + begin + table + end + after
	}
	if made == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s differs from the tables: go test ./onnxq -run TargetsDocument -update", path)
	}
	if err := os.WriteFile(path, []byte(made), 0o666); err != nil {
		t.Fatal(err)
	}
}

func describeEngine(b *strings.Builder, e target.Engine) {
	fmt.Fprintf(b, "\n## %s: %s\n\n", e.Target, e.Name)
	fmt.Fprintf(b, "Known: %s.", e.Known)
	if e.Opset != 0 {
		fmt.Fprintf(b, " Loads opsets up to %d", e.Opset)
		if e.IR != 0 {
			fmt.Fprintf(b, " and IR versions up to %d", e.IR)
		}
		b.WriteString(".")
	}
	b.WriteString("\n\n| format | decoded by | blocks | one scale per channel |\n|---|---|---|---|\n")
	for _, s := range e.Formats {
		for _, f := range s.Formats {
			blocks, channel := s.Blocks.String(), "no"
			if s.Blocks.Only {
				blocks = "no"
			} else if f.Traits().Only {
				blocks = strings.Replace(blocks, "any blocks", fmt.Sprintf("blocks of %d", f.Traits().Block), 1)
			}
			if s.Blocks.PerChannel && !f.Traits().Only {
				channel = "yes"
			}
			var but []string
			if s.Even {
				but = append(but, "last axis even")
			}
			if s.EvenSum {
				but = append(but, "even axis")
			}
			if s.Product {
				but = append(but, "not in convolutions")
			}
			if len(but) > 0 {
				blocks += "; " + strings.Join(but, ", ")
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", f, decoderOf(&e, f), blocks, channel)
		}
	}
	for i, r := range e.Remarks {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(b, "- %s\n", r)
	}
}

// decoderOf names the operators that decode a format for a target.
func decoderOf(e *target.Engine, f spec.Format) string {
	t := f.Traits()
	operators := "DequantizeLinear"
	switch {
	case e.Tables(f):
		return "Cast, Gather from a table of values, Mul"
	case t.Family == spec.Microscaling && !e.Has(dtype.Float8E8M0):
		return "Cast of the scales, DequantizeLinear"
	case t.Family == spec.TwoLevel, t.Family == spec.Blockwise && f.Encoding().Form.Nested:
		operators += " of scales that another one decodes"
	}
	if t.Family == spec.Blockwise && f.Encoding().Form.Mins {
		operators += ", Sub"
	}
	return operators
}

func TestBlocksThatFit(t *testing.T) {
	ov, _ := target.Of(spec.OpenVINO).Support(spec.Int4)
	trt, _ := target.Of(spec.TensorRT).Support(spec.Int4)
	channels, _ := target.Of(spec.TensorRT).Support(spec.Int8)
	mx, _ := target.Of(spec.OpenVINO).Support(spec.MXFP8)
	for _, c := range []struct {
		rule target.BlockRule
		n    int
		k    int64
		want int
		ok   bool
	}{
		{target.AnyBlocks, 48, 50, 48, true},
		{target.AnyBlocks, spec.PerChannel, 50, spec.PerChannel, true},
		{ov.Blocks, 128, 512, 128, true},
		{ov.Blocks, 128, 96, 32, true},
		{ov.Blocks, 48, 96, 32, true},
		{ov.Blocks, 8, 24, 8, true}, // small, but asked for
		{ov.Blocks, 32, 24, spec.PerChannel, true},
		{ov.Blocks, 32, 20, spec.PerChannel, true},
		{ov.Blocks, 1 << 40, 96, 32, true},
		{trt.Blocks, 128, 256, 128, true},
		{trt.Blocks, 128, 192, 64, true},
		{trt.Blocks, 128, 96, spec.PerChannel, false},
		{channels.Blocks, 128, 96, spec.PerChannel, true},
		{mx.Blocks, 32, 48, spec.PerChannel, false},
	} {
		got, ok := c.rule.Nearest(c.n, c.k)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%v: blocks of %d in %d: %d, %v, want %d, %v", c.rule, c.n, c.k, got, ok, c.want, c.ok)
		}
	}
}

// Options that a target can follow for no weight are refused; what a
// precision_info asks for leaves the weight in float.
func TestTargetRefuses(t *testing.T) {
	for _, c := range []struct {
		opts Options
		want string // part of the message; empty: accepted
	}{
		{Options{Target: spec.OpenVINO, Bits: 2}, "does not take int2, only int4"},
		{Options{Target: spec.OpenVINO, ZeroPoint: true}, ""},
		{Options{Target: spec.TensorRT, ZeroPoint: true}, "does not take uint4"},
		{Options{Target: spec.TensorRT, Block: 32}, "takes int4 in blocks of 64 or 128 that divide the axis, not block 32"},
		{Options{Target: spec.TensorRT, Block: spec.PerChannel}, "not per channel"},
		{Options{Target: spec.TensorRT, Bits: 8, Block: 32}, "takes int8 in one scale per channel, not block 32"},
		{Options{Target: spec.TensorRT, Bits: 8}, ""},
		{Options{Target: spec.TensorRT, Format: spec.NF4}, "does not take nf4"},
		{Options{Target: spec.TensorRT, Style: spec.NBits}, "no MatMulNBits"},
		{Options{Target: "gpu"}, "known: portable, ort, tensorrt, openvino"},
	} {
		_, err := c.opts.withDefaults()
		switch {
		case c.want == "" && err != nil, c.want != "" && err == nil:
			t.Errorf("%+v: %v", c.opts, err)
		case err != nil && !strings.Contains(err.Error(), c.want):
			t.Errorf("%v does not say %q", err, c.want)
		}
	}

	in := built(t, "mlp")
	p, err := rules.ParsePrecision([]byte(`{"w0": 2, "w1": {"block": 48}, "w2": {"block": 64}}`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Convert(context.Background(), in, filepath.Join(t.TempDir(), "out.onnx"), Options{Target: spec.OpenVINO, Precision: p})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]TensorPlan{}
	for _, p := range r.Plan.Tensors {
		got[p.Name] = p
	}
	if w := got["w0"]; w.Decision != Keep || !strings.Contains(w.Reason, "OpenVINO does not take int2") {
		t.Errorf("%+v", w)
	}
	if w := got["w1"]; w.Block != 32 || w.Note != "block 32, not block 48: OpenVINO takes powers of two that divide the axis" {
		t.Errorf("%+v", w)
	}
	if w := got["w2"]; w.Block != 64 || w.Note != "" {
		t.Errorf("%+v", w)
	}
}
