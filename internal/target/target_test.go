package target

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/testing/docpart"
	"onnxquant/spec"
)

// docs/targets.md has the table of targets.
func TestTargetsDocument(t *testing.T) {
	var b strings.Builder
	for _, e := range Engines {
		describeEngine(&b, e)
	}
	docpart.Check(t, "../../docs/targets.md", "<!-- from the table in internal/target/target.go -->\n", b.String(), "<!-- end of the table -->\n")
}

func describeEngine(b *strings.Builder, e Engine) {
	fmt.Fprintf(b, "\n## %s: %s\n\n", e.Target, e.Name)
	known := fmt.Sprintf("Known: %s.", e.Known)
	if e.Opset != 0 {
		known += fmt.Sprintf(" Loads opsets up to %d", e.Opset)
		if e.IR != 0 {
			known += fmt.Sprintf(" and IR versions up to %d", e.IR)
		}
		known += "."
	}
	b.WriteString(docpart.Wrap("", known) + "\n| format | decoded by | blocks | one scale per channel |\n|---|---|---|---|\n")
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
			if len(s.EvenSum) > 0 {
				but = append(but, "even axis in matrix products")
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
	if slices.Contains(e.Static.Formats, spec.Int4) {
		fmt.Fprintf(b, "| int4, with static activations | DequantizeLinear | %s | yes |\n", e.Static.Int4)
	}
	remarks := slices.Clone(e.Remarks)
	if lost := lostKernels(&e); lost != "" {
		remarks = append(remarks, lost+" A weight whose format would raise a model that far stays in float.")
	}
	for i, r := range remarks {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString(docpart.Wrap("- ", r))
	}
}

// decoderOf names the operators that decode a format for a target.
func decoderOf(e *Engine, f spec.Format) string {
	t := f.Traits()
	operators := "DequantizeLinear"
	switch {
	case e.Direct && f.Scaled() && e.MatMulNBits.Takes(f.Bits()):
		return "MatMulNBits, or else DequantizeLinear"
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
	ov, _ := Of(spec.OpenVINO).Support(spec.Int4)
	trt, _ := Of(spec.TensorRT).Support(spec.Int4)
	channels, _ := Of(spec.TensorRT).Support(spec.Int8)
	mx, _ := Of(spec.OpenVINO).Support(spec.MXFP8)
	qnn := Of(spec.QNN).Static.Int4
	for _, c := range []struct {
		rule BlockRule
		n    int
		k    int64
		want int
		ok   bool
	}{
		{AnyBlocks, 48, 50, 48, true},
		{AnyBlocks, spec.PerChannel, 50, spec.PerChannel, true},
		{ov.Blocks, 128, 512, 128, true},
		{ov.Blocks, 128, 96, 32, true},
		{ov.Blocks, 48, 96, 32, true},
		{ov.Blocks, 8, 24, 8, true}, // small but requested
		{ov.Blocks, 32, 24, spec.PerChannel, true},
		{ov.Blocks, 32, 20, spec.PerChannel, true},
		{ov.Blocks, 1 << 40, 96, 32, true},
		{trt.Blocks, 128, 256, 128, true},
		{trt.Blocks, 128, 192, 64, true},
		{trt.Blocks, 128, 96, spec.PerChannel, false},
		{channels.Blocks, 128, 96, spec.PerChannel, true},
		{mx.Blocks, 32, 48, spec.PerChannel, false},
		{qnn, 32, 48, 24, true},
		{qnn, 24, 48, 24, true},
		{qnn, 8, 24, 8, true},
		{qnn, 32, 36, spec.PerChannel, true},
		{qnn, 40, 80, 40, true},
	} {
		got, ok := c.rule.Nearest(c.n, c.k)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%v: blocks of %d in %d: %d, %v, want %d, %v", c.rule, c.n, c.k, got, ok, c.want, c.ok)
		}
	}
}
