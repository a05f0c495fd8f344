package onnxq

import (
	"fmt"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
)

// engine is what stands behind a target, and what it takes.
type engine struct {
	target Target
	label  string
	name   string // with the version that the entries are of
	known  string // how the entries are known
	opset  int64  // the newest that it loads; 0: no limit is known
	ir     int64

	formats []support
	// lacks holds types that the standard has and its DequantizeLinear has not.
	// Codes of such a type are looked up in a table instead; scales are cast.
	lacks []dtype.DType
	// oneAxis: it goes wrong unless scales belong to stretches of the axis that
	// each reader sums over.
	oneAxis  bool
	vectors  bool // weights of one axis can be cut into blocks
	noScan   bool // a Scan cannot read a value that is computed outside of it
	standard bool // it has no operators but the standard's
	// nbits: operators that read codes themselves are faster than what is behind a
	// DequantizeLinear that is not fused.
	nbits   bool
	remarks []string // for docs/targets.md
}

// support is what a runtime takes of some formats.
type support struct {
	formats []Format
	blocks  blockRule
	even    bool // codes come in pairs along the last axis
	evenSum bool // codes come in pairs along the axis summed over
	product bool // weights of convolutions are not taken
}

// blockRule says how a runtime lets weights be cut into blocks.
type blockRule struct {
	sizes      []int // the only ones, ascending
	powers     bool  // powers of two only
	whole      bool  // the last block must not be short
	perChannel bool  // one scale per channel is possible,
	only       bool  // and nothing else
}

var anyBlocks = blockRule{perChannel: true}

// engines is the table of targets. docs/targets.md is made of it.
var engines = []engine{
	{
		target:  Portable,
		label:   "any runtime",
		name:    "any runtime with the standard's operators",
		known:   "the ONNX standard; run by the evaluator of the onnx package 1.23.2",
		vectors: true,
		formats: []support{{formats: Formats()[1:], blocks: anyBlocks}},
	},
	{
		target:  ORT,
		label:   "ONNX Runtime",
		name:    "ONNX Runtime 1.31 on a CPU",
		known:   "measured",
		opset:   26,
		ir:      13,
		vectors: true,
		formats: []support{{formats: Formats()[1:], blocks: anyBlocks}},
		lacks:   []dtype.DType{dtype.Float4E2M1, dtype.Float8E8M0, dtype.BFloat16},
		nbits:   true,
		remarks: []string{
			"It fuses DequantizeLinear and MatMul, or Gemm with transB=0, into MatMulNBits where an integer weight of two axes has one reader, in the same graph, scales along axis 0, and blocks of 16, 32, 64, 128 or 256 or one scale per channel. What it does not fuse is right but decoded at every run.",
			"2-bit weights that it fuses come out wrong where their columns are no multiple of 4.",
			"It refuses block_size where a weight of one axis has a single scale; the scale is a scalar then.",
		},
	},
	{
		target:   TensorRT,
		label:    "TensorRT",
		name:     "TensorRT 10.8 and later",
		known:    "read in its documentation and its ONNX parser, not run",
		opset:    25,
		standard: true,
		formats: []support{
			{formats: []Format{Int8, FP8E4M3}, blocks: blockRule{perChannel: true, only: true}},
			{formats: []Format{Int4}, blocks: blockRule{sizes: []int{64, 128}, whole: true}, even: true, product: true},
			{formats: []Format{NVFP4}, blocks: blockRule{sizes: []int{16}, whole: true}, even: true, product: true},
			{formats: []Format{MXFP8}, blocks: blockRule{sizes: []int{32}, whole: true}, product: true},
		},
		remarks: []string{
			"Symmetric codes only: there are no zero points.",
			"4-bit codes are packed in pairs along the last axis, whose length must be even.",
		},
	},
	{
		target: OpenVINO,
		label:  "OpenVINO",
		name:   "OpenVINO 2026.4 on a CPU",
		known:  "measured",
		formats: []support{
			{formats: []Format{Int4, Uint4}, blocks: blockRule{powers: true, whole: true, perChannel: true}, evenSum: true},
			{formats: []Format{Int8, Uint8, FP8E4M3, FP8E5M2}, blocks: blockRule{powers: true, whole: true, perChannel: true}},
			{formats: []Format{NVFP4}, blocks: blockRule{powers: true, whole: true}},
			{formats: []Format{MXFP4, MXFP8, MXFP8E5M2}, blocks: blockRule{sizes: []int{32}, whole: true}},
			{formats: []Format{NF4, FP4}, blocks: anyBlocks},
		},
		oneAxis: true,
		noScan:  true,
		remarks: []string{
			"It has no 2-bit types.",
			"It computes 4-bit integers wrongly where the axis summed over has an odd length, once there are five rows to multiply. Such a weight stays in float.",
			"It refuses blocks in a weight of one axis, which gets a single scale.",
			"It refuses a short last block, and computes many sizes wrongly that are no powers of two. A block that does not fit becomes the largest power of two below it that divides the axis and is at least 16, or else one scale per channel.",
			"It computes wrongly, or crashes, where one of a weight's readers sums over another axis than that of the scales. Such a weight stays in float.",
			"It refuses a Scan that reads a decoded weight from outside. Such a weight stays in float.",
			"It computes com.microsoft's MultiHeadAttention with a bias otherwise than ONNX Runtime does, in float models too.",
			"It rounds activations to 8 bits where it fuses, which costs 0.5 to 1.6 % in the outputs; the property DYNAMIC_QUANTIZATION_GROUP_SIZE = 0 avoids that.",
		},
	},
}

// engineOf returns what stands behind a target, or nil.
func engineOf(t Target) *engine {
	for i := range engines {
		if engines[i].target == t {
			return &engines[i]
		}
	}
	return nil
}

// has tells whether DequantizeLinear of the runtime takes a type.
func (r *engine) has(t dtype.DType) bool { return !slices.Contains(r.lacks, t) }

// tables tells whether codes of a format are looked up in a table.
func (r *engine) tables(f Format) bool {
	t := f.traits()
	e := f.encoding()
	return t.family == lookup || e != nil && e.Form.Values != nil || !r.has(t.codes)
}

// support finds what the runtime takes of a format.
func (r *engine) support(f Format) (support, bool) {
	if f.traits().family == blockwise { // one of the caller's own is as good as any
		f = blockwiseFormats()[0].format
	}
	for _, s := range r.formats {
		if slices.Contains(s.formats, f) {
			return s, true
		}
	}
	return support{}, false
}

// takes lists the formats that the runtime takes.
func (r *engine) takes() string {
	var names []string
	for _, s := range r.formats {
		for _, f := range s.formats {
			names = append(names, string(f))
		}
	}
	return strings.Join(names, ", ")
}

// check refuses what the target can follow for no weight. asked tells whether the
// block size was asked for, rather than being the format's default.
func (r *engine) check(style Style, format Format, block int, asked bool) error {
	s, ok := r.support(format)
	switch {
	case style == NBits && r.standard:
		return fmt.Errorf("target %s has no MatMulNBits: leave style to dq", r.target)
	case !ok:
		return fmt.Errorf("target %s does not take %s, only %s", r.target, format, r.takes())
	case asked && !s.blocks.possible(block):
		return fmt.Errorf("target %s takes %s in %s, not %s", r.target, format, s.blocks, blockName(block))
	}
	return nil
}

// fusedBlocks are the block sizes with which ONNX Runtime fuses
// DequantizeLinear.
var fusedBlocks = []int{16, 32, 64, 128, 256}

// possible tells whether there is an axis that the runtime could cut into blocks
// of n, or of less.
func (r blockRule) possible(n int) bool {
	switch {
	case n == PerChannel:
		return r.perChannel
	case r.only:
		return false
	}
	return len(r.sizes) == 0 || n >= r.sizes[0]
}

// fits tells whether an axis of k elements can be cut into blocks of n.
func (r blockRule) fits(n int, k int64) bool {
	switch {
	case n == PerChannel:
		return r.perChannel
	case r.only, r.powers && n&(n-1) != 0, len(r.sizes) > 0 && !slices.Contains(r.sizes, n):
		return false
	}
	return !r.whole || k%int64(n) == 0
}

// leastBlock is the least block that takes another's place: smaller ones cost
// more than they are worth.
const leastBlock = 16

// nearest finds the largest blocks, up to n, that an axis of k elements can be
// cut into, or else takes one scale per channel.
func (r blockRule) nearest(n int, k int64) (block int, ok bool) {
	if r.fits(n, k) {
		return n, true
	}
	for b := int(min(int64(n), k)); b >= leastBlock; b-- {
		if r.fits(b, k) {
			return b, true
		}
	}
	return PerChannel, r.perChannel
}

// String says in words which blocks there are.
func (r blockRule) String() string {
	var text string
	switch {
	case r.only:
		return "one scale per channel"
	case len(r.sizes) > 0:
		text = "blocks of " + strings.Trim(strings.ReplaceAll(fmt.Sprint(r.sizes), " ", " or "), "[]")
	case r.powers:
		text = "powers of two"
	default:
		text = "any blocks"
	}
	if r.whole {
		text += " that divide the axis"
	}
	return text
}
