package form

import (
	"onnxquant/formats/dtype"
	"onnxquant/formats/fp8"
	"onnxquant/formats/mx"
	"onnxquant/formats/qlora"
	"onnxquant/int4"
	"onnxquant/internal/quantize"
	"onnxquant/nvfp4"
	"onnxquant/spec"
)

// family says how the weights of a spec.Family are stored.
type family struct {
	codec  func(w *Weight) (c quantize.Codec, ok bool) // nil: the weight has a ggml encoding
	scales func(w *Weight) dtype.DType                 // type of the stored scales; nil or result 0: the weight's type
	values func(f spec.Format) []float32               // values of the codes if a table may decode them; may be nil
	nested bool                                        // the tensor has a scale for its scales
}

// families is the table of families.
var families = map[spec.Family]family{
	spec.Integer: {
		codec: func(w *Weight) (quantize.Codec, bool) {
			c := w.Choice
			return int4.Codec{Bits: c.Format.Bits(), Signed: c.Format.Signed(), ZeroPoint: c.ZeroPoint, Type: w.plainType(), Scale: c.ScaleType.DType()}, true
		},
		scales: func(w *Weight) dtype.DType {
			if w.Choice.ScaleType.Smaller() {
				return w.Choice.ScaleType.DType()
			}
			return 0
		},
	},
	spec.Float8: {
		codec: func(w *Weight) (quantize.Codec, bool) {
			format, ok := fp8Formats[w.Choice.Format]
			return fp8.Codec{Format: format, Type: w.plainType()}, ok
		},
	},
	spec.TwoLevel: {
		codec: func(w *Weight) (quantize.Codec, bool) {
			return nvfp4.Codec{TensorScale: 1, Type: w.plainType()}, true // FindTensorScales sets the scale
		},
		scales: always(dtype.Float8E4M3FN),
		values: valuesOfE2M1,
		nested: true,
	},
	spec.Microscaling: {
		codec: func(w *Weight) (quantize.Codec, bool) {
			format, ok := mxFormats[w.Choice.Format]
			rule, known := mxRules[w.Choice.Rule]
			return mx.Codec{Format: format, Rule: rule, Type: w.plainType()}, ok && known
		},
		scales: always(dtype.Float8E8M0),
		values: valuesOfE2M1,
	},
	spec.Lookup: {
		codec: func(w *Weight) (quantize.Codec, bool) {
			table, ok := qloraTables[w.Choice.Format]
			return qlora.Codec{Table: table, Type: w.plainType(), Reciprocal: w.bnb4()}, ok
		},
		values: func(f spec.Format) []float32 {
			values := qloraTables[f].Values()
			return values[:]
		},
	},
	spec.Blockwise: {
		scales: func(w *Weight) dtype.DType {
			if w.Choice.Style == spec.NBits {
				return 0
			}
			return dtype.Float16
		},
		values: func(f spec.Format) []float32 { return f.Encoding().Form.Values },
	},
}

var (
	fp8Formats  = map[spec.Format]fp8.Format{spec.FP8E4M3: fp8.E4M3FN, spec.FP8E5M2: fp8.E5M2}
	mxFormats   = map[spec.Format]mx.Format{spec.MXFP4: mx.MXFP4, spec.MXFP8: mx.MXFP8E4M3, spec.MXFP8E5M2: mx.MXFP8E5M2}
	mxRules     = map[spec.ScaleRule]mx.Rule{"": mx.Default, spec.RuleOCP: mx.OCP, spec.RuleCeil: mx.Reference}
	qloraTables = map[spec.Format]qlora.Table{spec.NF4: qlora.NF4, spec.FP4: qlora.FP4}
)

func always(t dtype.DType) func(*Weight) dtype.DType {
	return func(*Weight) dtype.DType { return t }
}

// valuesOfE2M1 returns the values of E2M1 codes, or nil for other formats.
func valuesOfE2M1(f spec.Format) []float32 {
	if f.Traits().Codes != dtype.Float4E2M1 {
		return nil
	}
	values := make([]float32, 16)
	for code := range values {
		values[code] = nvfp4.DecodeE2M1(byte(code))
	}
	return values
}

// Table returns the values of a format's codes if a table may decode them, else nil.
func Table(f spec.Format) []float32 {
	if values := families[f.Traits().Family].values; values != nil {
		return values(f)
	}
	return nil
}
