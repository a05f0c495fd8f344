package onnxq

import (
	"fmt"
	"slices"
	"strings"

	"onnxquant/internal/modelfile"
)

// Target is what shall run the output. Weights get the form that it executes
// well, and blocks that it can take; docs/targets.md says which.
type Target string

const (
	Portable Target = "portable" // the types and operators that the standard has for a format
	ORT      Target = "ort"      // ONNX Runtime, on a CPU
	TensorRT Target = "tensorrt"
	OpenVINO Target = "openvino" // on a CPU
)

// Targets lists every target, Portable first.
func Targets() []Target {
	names := make([]Target, len(engines))
	for i, r := range engines {
		names[i] = r.target
	}
	return names
}

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
	lacks []modelfile.DType
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
		known:   "the ONNX standard; tested with the ReferenceEvaluator of onnx 1.23.2",
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
		lacks:   []modelfile.DType{modelfile.Float4E2M1, modelfile.Float8E8M0, modelfile.BFloat16},
		nbits:   true,
		remarks: []string{
			"It fuses DequantizeLinear with MatMul, or with Gemm with transB=0, into MatMulNBits if an integer weight has two axes, one reader in the same graph, scales along axis 0, and blocks of 16, 32, 64, 128 or 256 or one scale per channel. Other weights are correct, but are decoded at every run.",
			"It computes fused 2-bit weights wrongly if the number of columns is not a multiple of 4.",
			"It refuses block_size for a weight with one axis and one scale. Such a weight gets a scalar scale without block_size.",
		},
	},
	{
		target:   TensorRT,
		label:    "TensorRT",
		name:     "TensorRT 10.8 and later",
		known:    "from its documentation and its ONNX parser; not run",
		opset:    25,
		standard: true,
		formats: []support{
			{formats: []Format{Int8, FP8E4M3}, blocks: blockRule{perChannel: true, only: true}},
			{formats: []Format{Int4}, blocks: blockRule{sizes: []int{64, 128}, whole: true}, even: true, product: true},
			{formats: []Format{NVFP4}, blocks: blockRule{sizes: []int{16}, whole: true}, even: true, product: true},
			{formats: []Format{MXFP8}, blocks: blockRule{sizes: []int{32}, whole: true}, product: true},
		},
		remarks: []string{
			"It takes symmetric codes only: no zero points.",
			"It packs 4-bit codes in pairs along the last axis, so the length of that axis must be even.",
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
			"It computes 4-bit integers wrongly if the reduction axis has an odd length and at least five rows are multiplied. Such a weight stays in float.",
			"It refuses blocks in a weight with one axis. Such a weight gets one scale.",
			"It refuses a short last block, and computes many block sizes wrongly that are not powers of two. A block size that does not fit becomes the largest smaller power of two that divides the axis and is at least 16, or else one scale per channel.",
			"It computes wrongly, or crashes, if a reader of the weight sums over another axis than that of the blocks. Such a weight stays in float.",
			"It refuses a Scan that reads a decoded weight from outside its body. Such a weight stays in float.",
			"It computes com.microsoft's MultiHeadAttention with a bias differently from ONNX Runtime, also in float models.",
			"Where it fuses, it rounds activations to 8 bits, which costs 0.5 to 1.6 % in the outputs. The property DYNAMIC_QUANTIZATION_GROUP_SIZE = 0 prevents that.",
		},
	},
}

func joinTargets() string {
	var names []string
	for _, t := range Targets() {
		names = append(names, string(t))
	}
	return strings.Join(names, ", ")
}

// engine returns what stands behind a target.
func (t Target) engine() *engine {
	for i := range engines {
		if engines[i].target == t {
			return &engines[i]
		}
	}
	return nil
}

// has tells whether DequantizeLinear of the runtime takes a type.
func (r *engine) has(t modelfile.DType) bool { return !slices.Contains(r.lacks, t) }

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

// check refuses options that the target can follow for no weight.
func (r *engine) check(o Options) error {
	if o.Format == Float {
		return nil
	}
	format, block, err := resolveFormat(o.Bits, o.Format, o.Block, o.ZeroPoint)
	if err != nil {
		return err
	}
	s, ok := r.support(format)
	switch {
	case o.Style == NBits && r.standard:
		return fmt.Errorf("target %s has no MatMulNBits: leave style to dq", r.target)
	case !ok:
		return fmt.Errorf("target %s does not take %s, only %s", r.target, format, r.takes())
	case o.Block != 0 && !s.blocks.possible(block):
		return fmt.Errorf("target %s takes %s in %s, not %s", r.target, format, s.blocks, blockName(block))
	}
	return nil
}

// fit adapts what was chosen for a weight to its target, and notes what it
// changes. It returns why the weight stays in float, if it does. A block that a
// precision_info asks for is not replaced by another kind.
func (d *decision) fit(x *graphIndex, opts Options) (obstacle string) {
	c := &d.choice
	o, _ := d.override(opts.Precision)
	asked := o.Block != nil
	r := c.target.engine()
	s, ok := r.support(c.format)
	if !ok {
		return fmt.Sprintf("%s does not take %s", r.label, c.format)
	}
	if asked && !s.blocks.possible(c.block) {
		return fmt.Sprintf("%s takes %s in %s, not %s", r.label, c.format, s.blocks, blockName(c.block))
	}
	if s.product && slices.ContainsFunc(d.leaves, leaf.convolves) {
		return fmt.Sprintf("%s takes no %s in convolutions", r.label, c.format)
	}
	if last := c.view[len(c.view)-1]; s.even && last%2 != 0 {
		return fmt.Sprintf("%s takes %s only where the last axis is even, not %d", r.label, c.format, last)
	}
	if r.target == Portable && d.dtype == modelfile.BFloat16 && !slices.ContainsFunc(d.leaves, func(l leaf) bool { return !l.cast }) {
		return "it is only cast, and what casts bfloat16 need not decode to it: name a target"
	}
	if r.noScan && x.scanned(d.value) {
		return fmt.Sprintf("%s refuses a Scan that reads what is decoded outside of it", r.label)
	}
	if u, ok := d.otherAxis(); ok && r.oneAxis {
		return fmt.Sprintf("%s goes wrong where a reader sums over another axis: %s", r.label, u)
	}
	k := c.view[c.axis]
	if s.evenSum && k%2 != 0 {
		return fmt.Sprintf("%s computes %s wrongly where the axis summed over is odd, as %d is", r.label, c.format, k)
	}
	if len(c.view) == 1 && !r.vectors && c.block != PerChannel && !r.tables(c.format) {
		if !s.blocks.perChannel {
			return fmt.Sprintf("%s cuts no weight of one axis into blocks", r.label)
		}
		d.remark(fmt.Sprintf("one scale, not block %d: %s cuts no weight of one axis into blocks", c.block, r.label))
		c.block = PerChannel
	}
	block, ok := s.blocks.nearest(c.block, k)
	if !ok {
		return fmt.Sprintf("%s takes %s in %s, and none divides %d", r.label, c.format, s.blocks, k)
	}
	if block != c.block {
		d.remark(fmt.Sprintf("%s, not block %d: %s takes %s", blockName(block), c.block, r.label, s.blocks))
		c.block = block
	}
	return ""
}

// unfused says why ONNX Runtime would decode an integer weight behind a
// DequantizeLinear at every run, or wrongly. It is "" where it fuses that with the
// weight's reader, and for other targets.
func (d *decision) unfused(x *graphIndex) string {
	c := &d.choice
	if !c.target.engine().nbits || !c.format.scaled() {
		return ""
	}
	if len(d.uses) == 0 {
		return "ONNX Runtime does not fuse its DequantizeLinear: a function returns it"
	}
	reader := d.uses[0]
	op, columns := reader.node.GetOpType(), d.shape[len(d.shape)-1]
	why := ""
	switch {
	case len(d.uses) > 1:
		why = "it has several readers"
	case reader.node != d.leaves[0].node:
		why = op + " lies between"
	case x.home[reader.node].values[d.name] != d.value:
		why = "it is read in a subgraph"
	case op != "MatMul" && op != "Gemm" || reader.input != 1:
		why = "it is read by " + reader.String()
	case len(d.shape) != 2:
		why = fmt.Sprintf("it has %d axes", len(d.shape))
	case c.axis != 0:
		why = fmt.Sprintf("its scales lie along axis 1 of %s", reader)
	case c.format.Bits() == 2 && columns%4 != 0:
		return fmt.Sprintf("ONNX Runtime computes it wrongly behind DequantizeLinear: %d columns are no multiple of 4", columns)
	case c.block != PerChannel && !slices.Contains(fusedBlocks, c.block):
		why = fmt.Sprintf("its blocks are of %d", c.block)
	default:
		return ""
	}
	return "ONNX Runtime does not fuse its DequantizeLinear: " + why
}

// fusedBlocks are the block sizes with which ONNX Runtime fuses
// DequantizeLinear.
var fusedBlocks = []int{16, 32, 64, 128, 256}

// otherAxis finds a reader that does not sum over the axis along which blocks
// run.
func (d *decision) otherAxis() (reader use, ok bool) {
	for _, l := range d.leaves {
		o, weight, why := l.operand(d.shape)
		if weight && (why != "" || o.axis != d.choice.axis || !slices.Equal(o.view, d.choice.view)) {
			return l.use, true
		}
	}
	return use{}, false
}

// scanned tells whether the body of a Scan reads a value from outside.
func (x *graphIndex) scanned(v *value) bool {
	return slices.ContainsFunc(v.uses, func(u use) bool {
		for s := x.home[u.node]; s != nil && s.values[v.name] != v; s = s.outer {
			if s.owner.GetOpType() == "Scan" {
				return true
			}
		}
		return false
	})
}

// convolves tells whether the reader is a convolution.
func (l leaf) convolves() bool {
	row := weightOpOf(l.use)
	return row != nil && row.whole
}

// newest warns of versions that the target does not load.
func (r *engine) newest(p *Plan) {
	if r.opset != 0 && p.OpsetAfter > r.opset {
		p.warn("the output is of opset %d, but %s loads models up to %d", p.OpsetAfter, r.name, r.opset)
	}
	if r.ir != 0 && p.IRAfter > r.ir {
		p.warn("the output is of IR version %d, but %s loads models up to %d", p.IRAfter, r.name, r.ir)
	}
}

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

// blockName says what a block size means.
func blockName(block int) string {
	if block == PerChannel {
		return "per channel"
	}
	return fmt.Sprintf("block %d", block)
}
