// Package target lists what each runtime supports and runs well: formats, block sizes, opsets and
// quantized activations.
//
// [Engines] is the table, with one entry for each target. [Of] takes the name of a target and
// returns its [Engine], which is immutable and shared. docs/targets.md is generated from the table.
package target

import (
	"fmt"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/spec"
)

// Engine is the runtime of a target and what it supports. It must not be changed.
type Engine struct {
	Target  spec.Target
	Label   string
	Name    string   // with the examined version
	Short   string   // Name in reports of hazards
	Aliases []string // names that other tools have for the target
	Known   string   // source of the entries
	Opset   int64    // newest opset that the runtime loads; 0: no known limit
	IR      int64    // newest IR version that the runtime loads; 0: no known limit

	Formats []Support
	// lacks lists ONNX types that the runtime's DequantizeLinear does not support. Codes of such a
	// type are looked up in a table instead; scales are cast.
	lacks []dtype.DType
	// OneAxis: the runtime computes wrongly if a reader's reduction axis is not the axis of the
	// blocks.
	OneAxis  bool
	Vectors  bool // blocks are possible in weights with one axis
	NoScan   bool // the body of a Scan cannot read a value computed outside
	standard bool // the runtime has only ONNX's operators
	// NBits: operators that read codes are faster than an unfused DequantizeLinear.
	NBits bool
	// Folds: Cast, Sub and Mul of constants are folded when a model is loaded, but not a
	// DequantizeLinear. Weights have forms that are as fast as float.
	Folds bool
	// Direct: operators that read codes are faster than any DequantizeLinear.
	Direct      bool
	MatMulNBits MatMulNBits
	NoBnb4      bool     // there is no MatMulBnb4
	NoQMoE      bool     // there is no QMoE, or it has not been measured
	Wrong8      []string // operators that the runtime computes wrongly on 8-bit activations
	DataLimit   int64    // largest size of an external data file in bytes; 0: no known limit

	PositiveScales bool // negative scales are not supported
	StoredScales   bool // scales must be stored tensors, not computed by nodes

	TransposeCrashes bool // the runtime may be ONNX Runtime, which crashes on some Transposes of half floats

	FixedShapes bool // inputs whose shapes vary are not supported
	CodedInputs bool // operators compute with codes of weights only beside codes of activations

	Dynamic bool   // operators for dynamic activations are supported
	Static  Static // support of static activations

	Remarks []string // for docs/targets.md

	kernels func() kernels // nil: not known
}

// Static says which static activations a runtime supports. The zero Static is ONNX Runtime's.
type Static struct {
	Placement Placement
	PerTensor bool                // weights have per-tensor scales by default, not per-channel scales
	Symmetric bool                // zero points must be in the middle of the codes
	Type      spec.ActivationType // default; "": uint8
	Format    spec.Format         // default of weights; "": int8
	MinRange  float64             // least difference between the ends of a range
	Formats   []spec.Format       // of weights, besides int8 and uint8
	// Int4 has the block sizes of int4 weights, if Formats has int4. Blocks need activations of 16 bits. Their
	// scales are whole multiples, 1 to 16, of one scale per channel (LPBQ).
	Int4 BlockRule
	// Wide: operators of 16-bit activations run beside those of 8 bits, faster than in float.
	Wide bool
	// Refuses returns why the runtime does not take these types, or "". nil: the runtime takes all.
	Refuses func(activations spec.ActivationType, weights spec.Format) string
}

// Placement says where a runtime wants pairs of QuantizeLinear and DequantizeLinear. The zero
// Placement follows ONNX Runtime's quantize_static.
type Placement struct {
	Fused         bool // only inputs of operators that compute with codes are quantized
	FloatMaxPool  bool // with Fused: MaxPool has no pair, because the runtime computes it wrongly
	BeforeReshape bool // with Fused: a Reshape behind a product with per-channel scales has a quantized input, too
	EveryOp       bool // all float inputs and outputs of operators without a rule are quantized
	KeepClips     bool // no Relu or Clip is removed
	FloatBias     bool // biases stay in float
	ConvChannels  bool // only Conv has per-channel scales, not MatMul
	FixedScales   bool // Sigmoid and Tanh have fixed scales in 16 bits
	SplitSiLU     bool // in 16 bits, what a Conv makes has another scale for its Mul than for the Sigmoid in the other factor
}

// MatMulNBits says which MatMulNBits nodes a runtime takes. The zero MatMulNBits allows any.
type MatMulNBits struct {
	Codes     []int // bits of a code; nil: 2, 4 and 8
	CodeZeros bool  // zero points must be codes, not floats
}

// Support says how a runtime supports a group of formats.
type Support struct {
	Formats []spec.Format
	Blocks  BlockRule
	Even    bool     // the last axis must have an even length
	EvenSum []string // operators whose reduction axis must have an even length
	Product bool     // not for weights of convolutions
}

// BlockRule says which block sizes a runtime supports.
type BlockRule struct {
	sizes      []int // allowed block sizes, ascending; nil: any
	powers     bool  // block sizes must be powers of two
	multiple   int   // block sizes must be multiples of this; 0: any
	whole      bool  // the block size must divide the axis
	PerChannel bool  // per-channel scales are supported
	Only       bool  // only per-channel scales are supported
}

// DefaultInt4 is the block size of int4 beside static activations if none is asked for: the least error in the weights
// for scales that take less than the codes.
const DefaultInt4 = 32

// AnyBlocks is no restriction.
var AnyBlocks = BlockRule{PerChannel: true}

// products are the operators that multiply by the whole weight as a matrix.
var products = []string{"MatMul", "Gemm", "Einsum", "Attention", "FusedGemm", "FusedMatMul", "TransposeMatMul", "MoE"}

// Engines lists the targets.
var Engines = []Engine{
	{
		Target:  spec.Portable,
		Label:   "any runtime",
		Name:    "any runtime with the standard's operators",
		Short:   "any",
		Known:   "the ONNX standard; tested with the ReferenceEvaluator of onnx 1.23.2",
		Vectors: true,
		Formats: []Support{{Formats: spec.Formats()[1:], Blocks: AnyBlocks}},
		Dynamic: true,

		TransposeCrashes: true,
	},
	{
		Target:  spec.ORT,
		Label:   "ONNX Runtime",
		Name:    "ONNX Runtime 1.31 on a CPU",
		Short:   "ONNX Runtime 1.31",
		Aliases: []string{"onnxruntime", "cpu", "cuda", "directml"},
		Known:   "measured",
		Opset:   26,
		IR:      13,
		Vectors: true,
		Formats: []Support{{Formats: spec.Formats()[1:], Blocks: AnyBlocks}},
		lacks:   []dtype.DType{dtype.Float4E2M1, dtype.Float8E8M0, dtype.BFloat16},
		NBits:   true,
		Folds:   true,
		Dynamic: true,
		kernels: inORT,

		TransposeCrashes: true,
		Remarks: []string{
			"2-bit types need opset 25. MatMulNBits reads 2-bit codes at any opset, so 2-bit weights get it unless the model has opset 25 already.",
			"It fuses DequantizeLinear with MatMul or Gemm into MatMulNBits if an integer weight has two axes, one reader in the same graph, scales along axis 0, and blocks of 16, 32, 64, 128 or 256 or one scale per channel. Behind a DequantizeLinear, other weights are correct, but are decoded at every run, among them all of Conv, LSTM and GRU. `--target ort` writes Cast and Mul for them, which it folds when it loads the model.",
			"It does not fuse a Gemm with transA, transB or alpha, or with a C other than a vector with one element per column, or with beta for that. It makes a Gemm of a MatMul with two axes and an Add behind it.",
			"It does not fuse a product whose result only a Relu or Clip reads, if a single operator reads that one's result; nor a Gemm whose first factor comes from a Transpose, or whose result a Transpose alone reads if it has no C.",
			"It computes fused 2-bit weights wrongly if the number of columns is not a multiple of 4. Codes of such a weight get a third axis of length 1, and a Reshape behind their DequantizeLinear, unless MatMulNBits reads them: so it is not fused, also with the target portable.",
			"It computes zeros with fused float16 weights in a body of If, Loop or Scan, or in a function that is called from one. Codes of such a weight get a third axis, too, unless MatMulNBits reads them.",
			"With its optimizations it refuses, or computes wrongly with one column, a Transpose of 2-bit weights with a zero point per channel. Codes of such a weight get a third axis, too.",
			"It does not fuse int8 without zero points, one scale per channel, behind a Transpose, if the opset is below 21. `--target ort` writes MatMulNBits where that is fast; for rows longer than 256, which that cannot hold as one block, it stores zero points of 0, with which ONNX Runtime fuses: the outputs are those of opset 21, bit for bit.",
			"It decodes all experts of a MoE at every run behind a DequantizeLinear. `--target ort` writes QMoE, in blocks that divide the rows of all weights of the node. It decodes the chosen experts if a QMoE has one scale per channel.",
			"It refuses block_size for a weight with one axis and one scale. Such a weight gets a scalar scale without block_size.",
		},
	},
	{
		Target:      spec.ORTWeb,
		Label:       "ONNX Runtime Web",
		Name:        "ONNX Runtime Web 1.31",
		Short:       "ONNX Runtime Web 1.31",
		Aliases:     []string{"onnxruntime-web", "web", "wasm", "webgpu", "transformers.js"},
		Known:       "measured in Chromium with the native WebGPU kernels, which transformers.js 4 loads, on SwiftShader in float32; and with WebAssembly",
		Opset:       26,
		IR:          13,
		Vectors:     true,
		NBits:       true,
		Direct:      true,
		MatMulNBits: MatMulNBits{CodeZeros: true},
		NoQMoE:      true,
		DataLimit:   1<<31 - 1,
		kernels:     inORT,
		Formats: []Support{
			{Formats: []spec.Format{spec.Int2, spec.Uint2, spec.Int4, spec.Uint4}, Blocks: BlockRule{powers: true, PerChannel: true}},
			{Formats: spec.Formats()[5:], Blocks: AnyBlocks},
		},
		lacks: []dtype.DType{dtype.Float4E2M1, dtype.Float8E8M0, dtype.BFloat16},
		Static: Static{Refuses: func(spec.ActivationType, spec.Format) string {
			return "static activations are not for target ort-web"
		}},
		Remarks: []string{
			"Weights of MatMul and Gemm become MatMulNBits where they can: WebGPU does not fuse a DequantizeLinear with its reader.",
			"Its native WebGPU kernels take MatMulNBits of 2, 4 and 8 bits, with zero points, with a bias and with a short last block, and not of 1 bit.",
			"The older WebGPU kernels (JSEP) do not. transformers.js 3 loads them, and pages that import `onnxruntime-web` or `onnxruntime-web/all`; `onnxruntime-web/webgpu` is native. They refuse a bias and 8 bits. Without a word they compute wrongly with a short last block, with 4 bits in blocks of 64 and more, and with 2 bits in blocks of 128 and more. `inspect` finds what they compute wrongly.",
			"GatherBlockQuantized, MatMulBnb4, DequantizeLinear of 4 and 8 bits and operators that compute with codes give right results, too. Which of them run on the GPU was not looked at.",
			"A browser reads a file of external data in one piece, of less than 2 GiB. Larger data go to several files, OUT.data, OUT.data_1 and so on, unless --shard-size says otherwise; the page must name all of them as externalData. For transformers.js, see its preset: names are as that wants them.",
		},
	},
	{
		Target:   spec.TensorRT,
		Label:    "TensorRT",
		Name:     "TensorRT 10.8 and later",
		Short:    "TensorRT",
		Aliases:  []string{"trt"},
		Known:    "from its documentation and its ONNX parser; not run",
		Opset:    25,
		standard: true,
		Formats: []Support{
			{Formats: []spec.Format{spec.Int8, spec.FP8E4M3}, Blocks: BlockRule{PerChannel: true, Only: true}},
			{Formats: []spec.Format{spec.Int4}, Blocks: BlockRule{sizes: []int{64, 128}, whole: true}, Even: true, Product: true},
			{Formats: []spec.Format{spec.NVFP4}, Blocks: BlockRule{sizes: []int{16}, whole: true}, Even: true, Product: true},
			{Formats: []spec.Format{spec.MXFP8}, Blocks: BlockRule{sizes: []int{32}, whole: true}, Product: true},
		},
		PositiveScales: true,
		StoredScales:   true,
		Static: Static{
			Placement: Placement{Fused: true, KeepClips: true, FloatBias: true},
			Symmetric: true,
			Type:      "int8",
			Formats:   []spec.Format{spec.FP8E4M3},
			Refuses: func(activations spec.ActivationType, weights spec.Format) string {
				switch {
				case activations == spec.ActivationsFP8: // with weights of the same format
				case activations != "int8":
					return "TensorRT takes symmetric int8 activations only, or fp8-e4m3"
				case weights == spec.Uint8:
					return "TensorRT takes symmetric int8 weights only"
				}
				return ""
			},
		},
		Remarks: []string{
			"It takes symmetric codes only: no zero points.",
			"It computes with FP8 where activations and weights have it: [fp8-e4m3](activations.md#fp8-for-tensorrt). Its convolutions in FP8 need 16 channels and more, by ModelOpt's rules.",
			"It packs 4-bit codes in pairs along the last axis, so the length of that axis must be even.",
		},
	},
	{
		Target: spec.OpenVINO,
		Label:  "OpenVINO",
		Name:   "OpenVINO 2026.4 on a CPU",
		Short:  "OpenVINO 2026.4",
		Known:  "measured",
		Formats: []Support{
			{Formats: []spec.Format{spec.Int4, spec.Uint4}, Blocks: BlockRule{powers: true, whole: true, PerChannel: true}, EvenSum: products},
			{Formats: []spec.Format{spec.Int8, spec.Uint8, spec.FP8E4M3, spec.FP8E5M2}, Blocks: BlockRule{powers: true, whole: true, PerChannel: true}},
			{Formats: []spec.Format{spec.NVFP4}, Blocks: BlockRule{powers: true, whole: true}},
			{Formats: []spec.Format{spec.MXFP4, spec.MXFP8, spec.MXFP8E5M2}, Blocks: BlockRule{sizes: []int{32}, whole: true}},
			{Formats: []spec.Format{spec.NF4, spec.FP4}, Blocks: AnyBlocks},
		},
		OneAxis: true,
		NoScan:  true,
		NoBnb4:  true,
		NoQMoE:  true,
		Static: Static{
			Placement: Placement{Fused: true, KeepClips: true, FloatBias: true, FloatMaxPool: true, BeforeReshape: true},
			Refuses: func(activations spec.ActivationType, _ spec.Format) string {
				if strings.HasSuffix(string(activations), "16") {
					return "OpenVINO computes with 8 bits, not with 16"
				}
				return ""
			},
		},
		Remarks: []string{
			"It has no 2-bit types.",
			"It has no MatMulBnb4. Weights of nf4 and fp4 stay in dq.",
			"It keeps the codes of weights of MatMul and Gemm, also if several read them: integers, nvfp4 and mxfp4 in blocks, and one scale per channel. In a Gather it does so only with one scale per row. All others it decodes when it loads the model, among them fp8, mxfp8, nf4 and every weight of Conv: they save space in the file alone.",
			"It computes 4-bit integers wrongly in MatMul and Gemm if the reduction axis has an odd length and several rows are multiplied. Such a weight of a matrix product stays in float. Conv, ConvTranspose, LSTM, GRU, RNN and Gather are right.",
			"It refuses blocks in a weight with one axis. Such a weight gets one scale.",
			"It refuses a short last block, and computes many block sizes wrongly that are not powers of two. A block size that does not fit becomes the largest smaller power of two that divides the axis and is at least 16, or else one scale per channel.",
			"It computes wrongly, or crashes, if a reader of the weight sums over another axis than that of the blocks. Such a weight stays in float.",
			"It refuses a Scan that reads a decoded weight from outside its body. Such a weight stays in float.",
			"It computes com.microsoft's MultiHeadAttention with a bias differently from ONNX Runtime, also in float models.",
			"Where it fuses, it rounds activations to 8 bits, which costs 0.5 to 1.6 % in the outputs. The property DYNAMIC_QUANTIZATION_GROUP_SIZE = 0 prevents that.",
		},
	},
	{
		Target:   spec.QNN,
		Label:    "QNN",
		Name:     "ONNX Runtime's QNN execution provider",
		Short:    "QNN 2.7",
		Known:    "from ONNX Runtime's documentation and its quantizer for QNN, and by the emulator in onnxruntime-qnn 2.7",
		Opset:    26,
		IR:       13,
		standard: true,
		Formats: []Support{
			{Formats: []spec.Format{spec.Int8, spec.Uint8}, Blocks: BlockRule{PerChannel: true, Only: true}},
		},
		Wrong8:      []string{"BatchNormalization", "CumSum"},
		FixedShapes: true,
		CodedInputs: true,
		Static: Static{
			Placement: Placement{EveryOp: true, ConvChannels: true, FixedScales: true, SplitSiLU: true},
			PerTensor: true,
			Format:    spec.Uint8,
			MinRange:  0.0001,
			Formats:   []spec.Format{spec.Int4},
			Int4:      BlockRule{multiple: 8, whole: true, PerChannel: true},
			Wide:      true,
		},
		StoredScales: true,
		Remarks: []string{
			"It computes with codes where activations have codes, too: see [activations.md](activations.md#for-qnn). A weight beside a float activation is decoded on the CPU, and its operator computes in float; with CPU fallback disabled, the model is refused. A warning says so.",
			"It takes int4 beside static activations alone ([which weights](activations.md#int4-for-qnn)): in blocks for MatMul and for Conv of 1 × 1, beside activations of 16 bits, else with a scale per channel. Blocks need its provider option `enable_block_quant_weight_optimization=1`.",
			"It expands a scale of a block to a whole multiple, 1 to 16, of the channel's largest scale / 16, and rounds other scales: 1 to 4 % in the outputs. `--target qnn` writes such multiples.",
			"It computes int4 with a scale per channel wrongly without zero points, so zero points of 0 are stored. It computes blocks wrongly whose size does not divide the axis or is no multiple of 8. It does not take uint4.",
			"It takes no shapes that vary: `--fix-dim batch=1` fixes the dimension of that name, `--fix-dim x:0=1` one without a name. A warning names the dimensions.",
			"It computes CumSum wrongly on activations of 8 bits, and BatchNormalization with some data: a warning names the nodes. With 16 bits they are right.",
			"It computes Conv, Sigmoid and Mul (SiLU) wrongly on activations of 16 bits, by 30 to 80 %. A second pair in front of the Mul, with another scale, prevents that: `--target qnn` writes it. Where other nodes read the value with 8 bits, a warning names the nodes.",
		},
	},
}

// Takes reports whether codes may have the given number of bits.
func (m MatMulNBits) Takes(bits int) bool { return m.Codes == nil || slices.Contains(m.Codes, bits) }

// Of returns the runtime of a target, or nil.
func Of(t spec.Target) *Engine {
	for i := range Engines {
		if Engines[i].Target == t {
			return &Engines[i]
		}
	}
	return nil
}

// Has reports whether the runtime's DequantizeLinear supports a type.
func (e *Engine) Has(t dtype.DType) bool { return !slices.Contains(e.lacks, t) }

// Tables reports whether codes of a format must be looked up in a table of values.
func (e *Engine) Tables(f spec.Format) bool {
	t := f.Traits()
	encoding := f.Encoding()
	return t.Family == spec.Lookup || encoding != nil && encoding.Form.Values != nil || !e.Has(t.Codes)
}

// Support returns how the runtime supports a format. ok is false if it does not.
func (e *Engine) Support(f spec.Format) (Support, bool) {
	if f.Traits().Family == spec.Blockwise { // one entry stands for all, also for encodings that the caller registered
		f = spec.BlockwiseFormats()[0].Format
	}
	for _, s := range e.Formats {
		if slices.Contains(s.Formats, f) {
			return s, true
		}
	}
	return Support{}, false
}

// takes lists the supported formats.
func (e *Engine) takes() string {
	var names []string
	for _, s := range e.Formats {
		for _, f := range s.Formats {
			names = append(names, string(f))
		}
	}
	return strings.Join(names, ", ")
}

// Check refuses settings that the target supports for no weight. asked means that the user chose
// the block size.
func (e *Engine) Check(style spec.Style, format spec.Format, block int, asked bool) error {
	s, ok := e.Support(format)
	switch {
	case style == spec.NBits && e.standard:
		return fmt.Errorf("target %s has no MatMulNBits: use style dq", e.Target)
	case !ok && slices.Contains(e.Static.Formats, format):
		return fmt.Errorf("target %s does not take %s, only %s; %s needs static activations", e.Target, format, e.takes(), format)
	case !ok:
		return fmt.Errorf("target %s does not take %s, only %s", e.Target, format, e.takes())
	case asked && !s.Blocks.Possible(block):
		return fmt.Errorf("target %s takes %s in %s, not %s", e.Target, format, s.Blocks, spec.BlockName(block))
	}
	return nil
}

// CheckAlgorithm returns an error if an algorithm may find negative scales and the runtime takes
// none.
func (e *Engine) CheckAlgorithm(a spec.Algorithm, zeroPoint bool) error {
	if e.PositiveScales && a.Traits().NegativeScales && !zeroPoint {
		return fmt.Errorf("algorithm %s has negative scales, which %s does not take", a, e.Label)
	}
	return nil
}

// CheckScaleType returns an error if the runtime does not take scales of the given type.
func (e *Engine) CheckScaleType(s spec.ScaleType) error {
	if e.StoredScales && s.Smaller() {
		return fmt.Errorf("scale type %s: target %s takes no scales that nodes decode", s, e.Target)
	}
	return nil
}

// Possible reports whether blocks of n elements or less are supported for some length of the axis.
func (r BlockRule) Possible(n int) bool {
	switch {
	case n == spec.PerChannel:
		return r.PerChannel
	case r.Only, r.multiple != 0 && n%r.multiple != 0:
		return false
	}
	return len(r.sizes) == 0 || n >= r.sizes[0]
}

// Fits reports whether an axis of k elements may have blocks of n.
func (r BlockRule) Fits(n int, k int64) bool {
	switch {
	case n == spec.PerChannel:
		return r.PerChannel
	case r.Only, r.powers && n&(n-1) != 0, r.multiple != 0 && n%r.multiple != 0, len(r.sizes) > 0 && !slices.Contains(r.sizes, n):
		return false
	}
	return !r.whole || k%int64(n) == 0
}

// leastBlock is the smallest block that replaces another block size. Smaller blocks have too many
// scales.
const leastBlock = 16

// Nearest returns the largest block size up to n that an axis of k elements may have, or else
// spec.PerChannel. ok is false if that is not supported either.
func (r BlockRule) Nearest(n int, k int64) (block int, ok bool) {
	if r.Fits(n, k) {
		return n, true
	}
	for b := int(min(int64(n), k)); b >= leastBlock; b-- {
		if r.Fits(b, k) {
			return b, true
		}
	}
	return spec.PerChannel, r.PerChannel
}

// String describes the block sizes in words.
func (r BlockRule) String() string {
	var text string
	switch {
	case r.Only:
		return "one scale per channel"
	case len(r.sizes) > 0:
		text = "blocks of " + strings.Trim(strings.ReplaceAll(fmt.Sprint(r.sizes), " ", " or "), "[]")
	case r.powers:
		text = "powers of two"
	case r.multiple != 0:
		text = fmt.Sprintf("multiples of %d", r.multiple)
	default:
		text = "any blocks"
	}
	if r.whole {
		text += " that divide the axis"
	}
	return text
}

// Aliases maps the names of other tools to targets.
func Aliases() map[string]spec.Target {
	all := map[string]spec.Target{}
	for _, e := range Engines {
		for _, name := range e.Aliases {
			all[name] = e.Target
		}
	}
	return all
}
