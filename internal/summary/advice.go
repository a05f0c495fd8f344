package summary

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/cli"
	"onnxquant/internal/target"
	"onnxquant/internal/transformer"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// TargetHint proposes the target of ONNX Runtime for formats that it runs in another form.
func TargetHint(p *onnxq.Plan) []string {
	for _, format := range []spec.Format{spec.NVFP4, spec.MXFP4} {
		if slices.ContainsFunc(p.Tensors, func(t onnxq.TensorPlan) bool { return t.Decision == onnxq.Quantize && t.Format == format }) {
			return []string{fmt.Sprintf("ONNX Runtime needs --target ort to load %s", format)}
		}
	}
	if slices.Contains(p.OpsetFor, string(spec.Int2)) || slices.Contains(p.OpsetFor, string(spec.Uint2)) {
		return []string{fmt.Sprintf("few runtimes load opset %d yet; with --target ort 2-bit weights have a form of ONNX Runtime's in which it stays lower", p.OpsetAfter)}
	}
	return nil
}

// RaggedHint warns of blocks that the user chose and that do not divide a weight: OpenVINO and TensorRT
// refuse them.
func RaggedHint(p *onnxq.Plan) []string {
	var ragged []int64
	block := int64(0)
	for _, t := range p.Tensors {
		if t.Decision == onnxq.Quantize && t.Format.Scaled() && strings.Contains(t.Form, "DequantizeLinear") && t.Block > 0 && t.Axis < len(t.Shape) && t.Shape[t.Axis]%int64(t.Block) != 0 {
			ragged, block = append(ragged, t.Shape[t.Axis]), int64(t.Block)
		}
	}
	if ragged == nil {
		return nil
	}
	advice := "--block -1 gives one scale per channel"
	for _, b := range []int64{16, 32, 64, 128} {
		if b < block && !slices.ContainsFunc(ragged, func(k int64) bool { return k%b != 0 }) {
			advice = fmt.Sprintf("--block %d divides all", b)
		}
	}
	return []string{fmt.Sprintf("OpenVINO and TensorRT refuse this model, because blocks of %d do not divide %s, such as one over %d elements; %s; --target openvino or tensorrt chooses blocks that fit",
		block, english.Plural(len(ragged), "weight", ""), ragged[0], advice)}
}

// OverflowHint warns of products of codes whose sums overflow on this processor. What data chose is measured.
func OverflowHint(p *onnxq.Plan) []string { return overflowHint(p, target.SumsOverflow) }

func overflowHint(p *onnxq.Plan, overflow bool) []string {
	eight := func(t onnxq.TensorPlan) bool { // ONNX Runtime has exact sums for weights of uint8
		return t.Decision == onnxq.Quantize && t.Format == spec.Int8 && (strings.Contains(t.Form, "Integer") || strings.HasPrefix(t.Form, "Dynamic"))
	}
	if !overflow || p.Dynamic != nil || !slices.ContainsFunc(p.Tensors, eight) {
		return nil
	}
	return []string{"sums of products overflow on this processor, which has no VNNI, if codes are large; --reduce-range avoids it with codes of 7 bits, and with data (--calib) they are chosen if they lose less"}
}

// LeftExperts warns of experts that stay in float because their operators are not selected, while little else is quantized: those of a MoE,
// and stacks of matrices out of which a Gather takes some.
func LeftExperts(p *onnxq.Plan) []string {
	const most = 0.5 // of the bytes of float tensors
	var left int64
	ops := []string{"MatMul", "Gemm"}
	for i, t := range p.Tensors {
		names, ok := strings.CutPrefix(t.Reason, onnxq.Unselected)
		if !ok || !p.Stages().HasExperts(i) {
			continue
		}
		for _, op := range []string{"MoE", "Gather", "GatherND"} {
			if op == "MoE" && strings.Contains(names, "com.microsoft.MoE") || op == names {
				left += t.Bytes
				if !slices.Contains(ops, op) {
					ops = append(ops, op)
				}
			}
		}
	}
	if left == 0 || p.Coverage >= most {
		return nil
	}
	return []string{fmt.Sprintf("experts stay in float, %s: --ops %s selects them, --ops all everything", cli.ByteSize(left), strings.Join(ops, ","))}
}

// OpsHint suggests selecting all operators if the unselected ones have many weights.
func OpsHint(p *onnxq.Plan) []string {
	const many = 0.2 // of the bytes of float tensors
	var all, left int64
	operators := map[string]int{}
	for _, t := range p.Tensors {
		all += t.Bytes
		if names, ok := strings.CutPrefix(t.Reason, onnxq.Unselected); ok {
			left += t.Bytes
			operators[names]++
		}
	}
	if share := float64(left) / float64(max(all, 1)); share >= many {
		return []string{fmt.Sprintf("--ops all also quantizes weights of other operators, %.0f %% of the bytes: %s", 100*share, strings.Join(cli.Counts(operators), ", "))}
	}
	return nil
}

// AlgorithmHint suggests algorithm best if most weights have integers of at most 4 bits, rounded to
// nearest. docs/algorithms.md has the measurements: best helps most transformers.
func AlgorithmHint(m *onnxq.Model, p *onnxq.Plan) []string {
	var all, few int64
	for _, t := range p.Tensors {
		if t.Decision == onnxq.Quantize {
			all += t.Bytes
			if t.Format.Traits().Family == spec.Integer && t.Format.Bits() <= 4 {
				few += t.Bytes
			}
		}
	}
	switch {
	case 2*few <= all:
		return nil
	case transformer.HasAttention(m.Graph()):
		return []string{"with few bits, --algorithm best makes a smaller error in the outputs of most transformers, not of all; it takes longer"}
	}
	return []string{"with few bits, --algorithm mse makes a smaller error in the weights"}
}
