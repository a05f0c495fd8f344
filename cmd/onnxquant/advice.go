package main

import (
	"onnxquant/internal/summary"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// hints name flags that would do much better than a default which the user did not choose.
func (f *convertFlags) hints(m *onnxq.Model, p *onnxq.Plan) (hints []string) {
	if !f.opsGiven && f.auto == 0 && f.quantizes() {
		hints = append(hints, summary.OpsHint(p)...)
	}
	if f.auto > 0 && f.data == nil && p.Coverage > 0 {
		hints = append(hints, "with data (--calib) the mix and the codes are those that change the outputs least")
	}
	if !f.algorithmGiven && f.opts.Algorithm == "" && f.opts.Activations != spec.Static {
		hints = append(hints, summary.AlgorithmHint(m, p)...)
	}
	if f.opts.Target == "" || f.opts.Target == spec.Portable {
		hints = append(hints, summary.TargetHint(p)...)
		hints = append(hints, summary.RaggedHint(p)...)
	}
	if f.opts.Activations == spec.Dynamic && !f.opts.ReduceRange && (f.opts.Target == "" || f.opts.Target == spec.Portable || f.opts.Target == spec.ORT) {
		hints = append(hints, summary.OverflowHint(p)...)
	}
	if f.opts.Activations == spec.Static {
		hints = append(hints, "how good the outputs are depends on the ranges: onnxquant verify --inputs DATA IN OUT measures it")
	}
	if len(hints) == 0 && p.HalfPrecision != nil && p.HalfPrecision.Type == spec.Float16 {
		hints = append(hints, "values inside the model can exceed 65504, the largest of float16: compare with onnxquant verify IN OUT")
	}
	return hints
}

// quantizes reports whether weights were to be quantized: --float16 alone asks for none.
func (f *convertFlags) quantizes() bool {
	o := &f.opts
	return o.FloatType == "" || o.Bits != 0 || o.Format != "" || o.Precision != nil
}
