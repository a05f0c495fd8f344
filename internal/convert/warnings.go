package convert

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"onnxquant/formats/dtype"
	"onnxquant/internal/discover"
	"onnxquant/internal/fixdim"
	"onnxquant/internal/graph"
	"onnxquant/internal/half"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
	"onnxquant/internal/recognize"
	"onnxquant/internal/rewrite"
	"onnxquant/internal/target"
	"onnxquant/nvfp4"
	"onnxquant/spec"
)

func (p *Plan) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

// warnings collects the warnings about single weights and about the output.
func (p *Plan) warnings() {
	p.warnOfFloat()
	p.warnOfCalibration()
	p.warnOfRecoded()
	p.warnOfFloatZeros()
	p.warnOfExperts()
	p.warnOfCoarse()
	p.warnOfEmptyRanges()
	p.warnOfWrong8()
	p.warnOfSiLU()
	p.warnOfZeros()
	p.warnOfShapes()
	p.warnOfFloatInputs()
	p.warnOfConvolutions()
	e := p.opts.Discover.Target
	if opset := p.Output.Opset(); e.Opset != 0 && opset > e.Opset {
		p.warn("the output is of opset %d, but %s loads models up to %d", opset, e.Name, e.Opset)
	}
	if ir := p.Output.IR(); e.IR != 0 && ir > e.IR {
		p.warn("the output is of IR version %d, but %s loads models up to %d", ir, e.Name, e.IR)
	}
	if data := p.Output.DataBytes(); e.DataLimit != 0 && data > e.DataLimit {
		p.warn("a file of external data has %d bytes, but %s reads no file above %d", data, e.Name, e.DataLimit)
	}
	for _, l := range p.losses {
		p.warn("the opset becomes %d, but %s; it refuses the model (--target ort avoids that)", p.Output.Opset(), l)
	}
	shapes := graph.NewShapes(p.graph)
	if slices.ContainsFunc(p.Weights, func(w rewrite.Weight) bool { return w.Choice.Format == spec.NVFP4 && w.Choice.Block != nvfp4.BlockSize }) {
		p.warn("nvfp4 has blocks of %d by NVIDIA's definition; kernels for it refuse others, and runtimes decode them", nvfp4.BlockSize)
	}
	p.warnOfSlowBlocks(shapes)
	p.warnOfInputs()
	in, out := p.InBytes(), p.Output.Size()-p.recorded
	switch {
	case len(p.Weights) == 0 && p.opts.Half != nil:
	case len(p.Weights) == 0:
		p.warn("nothing is quantized: %s", p.WhyNothing())
	case out > in && p.opts.Discover.Style == spec.QDQ:
		p.warn("the output is larger than the input (%d bytes against %d): the style qdq keeps the float weights", out, in)
	case out > in:
		p.warn("the output is larger than the input (%d bytes against %d): its weights are too small to save space", out, in)
	}
}

// warnOfFloat names two kinds of weights that stay in float: those with a setting in
// precision_info, and those whose values cannot be quantized.
func (p *Plan) warnOfFloat() {
	var named []*discover.Decision
	for _, d := range p.Decisions {
		o := d.Override
		if !d.Quantize && d.Given == nil && d.Choice.Format != spec.Float && *o != (spec.Override{}) && (o.Format == nil || *o.Format != spec.Float) {
			named = append(named, d)
		}
		if why := p.except[d.Value.Path].KeepFloat; why != "" && why != reasonUseless {
			p.warn("%s stays in float: %s", msg.Quote(d.Value.Path), d.Reason)
		}
	}
	if len(named) > 3 { // a glob may name many
		paths := make([]string, len(named))
		for i, d := range named {
			paths[i] = d.Value.Path
		}
		p.warn("%d tensors stay in float though precision_info names them: %s (--verbose says why)", len(named), msg.ListNames(paths))
		return
	}
	for _, d := range named {
		p.warn("%s stays in float though precision_info names it: %s", msg.Quote(d.Value.Path), d.Reason)
	}
}

// warnOfCalibration names what calibration data cannot do: a second algorithm, and data that no weight uses.
func (p *Plan) warnOfCalibration() {
	if n := p.calibratedBy(spec.GPTQ); n > 0 && p.calibratedBy(spec.Best) > 0 {
		p.warn("%s by algorithm best, not gptq: one calibration cannot run both", english.Plural(n, "weight is calibrated", "weights are calibrated"))
	}
	if n := p.calibratedBy(spec.AWQ); n > 0 && p.calibration().Algorithm != spec.AWQ {
		p.warn("%s not by algorithm awq: one calibration runs awq for all weights or for none", english.Plural(n, "weight is calibrated", "weights are calibrated"))
	}
	if p.opts.Calibration != nil && len(p.Weights) > 0 && p.found.codes == nil && !p.calibrates() {
		p.warn("no weight is calibrated, so the data are not used; --dry-run --verbose says why")
	}
}

// warnOfCoarse names the activations for whose range codes are too coarse.
func (p *Plan) warnOfCoarse() {
	if p.static == nil || len(p.static.Coarse) == 0 {
		return
	}
	var names []string
	for _, v := range p.static.Coarse {
		names = append(names, msg.Quote(v.Path))
	}
	n := english.Plural(len(names), "activation", "")
	if p.opts.Discover.Static.Coarse {
		p.warn("codes are too coarse for the range of %s, which may spoil the outputs: %s (without --coarse-activations, the operators around them stay in float)", n, msg.List(names))
		return
	}
	p.warn("codes are too coarse for the range of %s, widened by masks or outliers; the operators around them stay in float: %s (--coarse-activations quantizes them)", n, msg.List(names))
}

// warnOfEmptyRanges names the ranges that hold only 0, or numbers that are 0 to the kernels of runtimes: codes clip all others.
func (p *Plan) warnOfEmptyRanges() {
	const least = 0x1p-126 // the least normal float32
	if p.static == nil {
		return
	}
	var names []string
	seen := map[*graph.Value]bool{}
	for _, t := range p.static.Tensors {
		v := t.Range
		if v == nil || t.Stored != nil || seen[v] {
			continue
		}
		seen[v] = true
		if r, ok := p.opts.Discover.Static.Ranges.Of(v.Path, v.Name); ok && max(-r.Min, r.Max) < least {
			names = append(names, msg.Quote(v.Path))
		}
	}
	if len(names) > 0 {
		p.warn("the range of %s holds nothing but 0, so that codes make all its values 0: %s", english.Plural(len(names), "activation", ""), msg.List(names))
	}
}

// warnOfWrong8 names the nodes that the target computes wrongly on activations of 8 bits.
func (p *Plan) warnOfWrong8() {
	if nodes := p.wrong8(); len(nodes) > 0 {
		p.warn("%s computes wrongly with activations of 8 bits: %s (--activation-type uint16)", p.opts.Discover.Target.Name, msg.List(describe(nodes)))
	}
}

func describe(nodes []*onnxpb.NodeProto) (names []string) {
	for _, n := range nodes {
		names = append(names, graph.Describe(n))
	}
	return names
}

// wrong8 lists the nodes that the target computes wrongly on activations of 8 bits.
func (p *Plan) wrong8() (nodes []*onnxpb.NodeProto) {
	e := p.opts.Discover.Target
	if p.static == nil || len(e.Wrong8) == 0 {
		return nil
	}
	for _, n := range p.graph.File.Proto.Graph.Node {
		t := p.static.ReadBy(p.static.Of(p.graph.Source(n, 0)), p.graph.Number(n))
		if t != nil && t.Codes.Type.Bits() == 8 && graph.IsStandard(n.GetDomain()) && slices.Contains(e.Wrong8, n.GetOpType()) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// warnOfZeros counts the float16 weights in bodies whose MatMulNBits gets accuracy_level 4 by a flag. Without the flag they
// get another level (discover.ScalesMayVanish).
func (p *Plan) warnOfZeros() {
	count := 0
	for _, w := range p.Weights {
		if c := w.Choice; c.Style == spec.NBits && c.NBits.Product && !c.NBits.Bnb4 && c.AccuracyLevel == spec.AccuracyInt8 && w.Form.DType == dtype.Float16 && w.ReadInBody(p.graph) {
			count++
		}
	}
	if count > 0 {
		p.warn("%s in bodies of If, Loop or Scan: ONNX Runtime may compute zeros of float16 scales with --accuracy-level 4; --accuracy-level 1 is right", english.Plural(count, "weight", ""))
	}
}

// warnOfSiLU names the products of a value with its Sigmoid that the target computes wrongly on activations of 16 bits.
func (p *Plan) warnOfSiLU() {
	if p.static == nil || !p.opts.Discover.Static.Placement.SplitSiLU {
		return
	}
	var nodes []*onnxpb.NodeProto
	for _, t := range p.static.Tensors {
		nodes = append(nodes, t.SiLU(p.graph)...)
	}
	if len(nodes) > 0 {
		p.warn("%s computes Conv, Sigmoid and Mul behind each other wrongly with activations of 16 bits: %s (--activation-type uint8 or uint16 is right)", p.opts.Discover.Target.Name, msg.List(describe(nodes)))
	}
}

// WrongIn8 lists the activations of 8 bits on which the target computes wrongly.
func (p *Plan) WrongIn8() (values []*graph.Value) {
	for _, n := range p.wrong8() {
		values = append(values, p.graph.Source(n, 0))
	}
	return values
}

// warnOfFloatZeros says that ONNX Runtime has no fast kernel for float zero points.
func (p *Plan) warnOfFloatZeros() {
	n := 0
	for _, d := range p.Decisions {
		if d.Quantize && d.Choice.NBits.FloatZeros {
			n++
		}
	}
	if n > 0 {
		p.warn("%s float zero points: ONNX Runtime then takes 20 to 100 times as long for a row on a CPU; other algorithms have integer zero points", english.Plural(n, "weight gets", "weights get"))
	}
}

// warnOfExperts says how many bytes of experts ONNX Runtime decodes at every run.
func (p *Plan) warnOfExperts() {
	var bytes uint64
	for _, w := range p.Weights {
		if w.Choice.Style == spec.DQ && !w.Choice.Folded && w.OfExperts() {
			bytes += uint64(w.Decision.Bytes)
		}
	}
	if bytes == 0 {
		return
	}
	hint := "--target ort writes QMoE"
	if p.opts.Discover.Target.Target == spec.ORT {
		hint = "--verbose says why there is no QMoE"
	}
	p.warn("ONNX Runtime decodes %s of experts (MoE) at every run, which takes up to 100 times as long as float; %s", humanize.IBytes(bytes), hint)
}

// warnOfSlowBlocks names block sizes with which ONNX Runtime does not compute with the codes.
func (p *Plan) warnOfSlowBlocks(shapes *graph.Shapes) {
	slow := map[int]int{} // weights by block size
	for _, w := range p.Weights {
		if w.SlowBlock(p.graph, shapes, p.opts.Discover.Style) {
			slow[w.Choice.Block]++
		}
	}
	for _, block := range slices.Sorted(maps.Keys(slow)) {
		var near []string
		for _, n := range target.NearestFused(block) {
			near = append(near, strconv.Itoa(n))
		}
		p.warn("%s blocks of %d, which %s decodes at every run; for speed use blocks of %s",
			english.Plural(slow[block], "weight has", "weights have"), block, p.opts.Discover.Target.Label, english.WordSeries(near, "or"))
	}
}

// warnOfInputs names quantized weights that callers could replace, because they are inputs with a
// default. Before IR 4 every initializer was an input.
func (p *Plan) warnOfInputs() {
	var names []string
	for _, w := range p.Weights {
		if w.Value.Input {
			names = append(names, msg.Quote(w.Value.Path))
		}
	}
	if len(names) > 0 && p.graph.File.Proto.GetIrVersion() >= opset.FreeInitializers {
		p.warn("quantized weights are no longer inputs, so callers cannot replace them: %s (--exclude keeps a weight)", msg.List(names))
	}
}

// warnOfShapes names dimensions that vary, if the target takes none.
func (p *Plan) warnOfShapes() {
	e := p.opts.Discover.Target
	if !e.FixedShapes {
		return
	}
	if names := fixdim.Varying(graph.RuntimeInputs(p.graph.File.Proto.Graph)); len(names) > 0 {
		noun := english.PluralWord(len(names), "dimension", "")
		p.warn("%s takes no shapes that vary, and inputs have the %s %s: --fix-dim %s=1 fixes it", e.Label, noun, msg.Names(names), names[0])
	}
}

// warnOfFloatInputs says that weights gain little, if the target computes with codes only beside codes of activations.
func (p *Plan) warnOfFloatInputs() {
	if e := p.opts.Discover.Target; e.CodedInputs && p.static == nil && len(p.Weights) > 0 {
		p.warn("%s decodes %s on the CPU, and their operators compute in float; without CPU fallback it refuses the model: --activations static --calib DATA makes codes that it computes with", e.Label, english.Plural(len(p.Weights), "weight", ""))
	}
}

// WhyNothing explains why no weight is quantized.
func (p *Plan) WhyNothing() string {
	var largest *discover.Decision // of the selected ones
	selected, already, others, unselected, float, named := 0, 0, 0, 0, 0, 0
	for _, d := range p.Decisions {
		switch {
		case d.Selected:
			selected++
			if largest == nil || d.Bytes > largest.Bytes {
				largest = d
			}
		case strings.HasPrefix(d.Reason, recognize.Already):
			already++
		case d.Reason == discover.FormatFloat:
			float++
		case d.Reason == discover.NotIncluded || d.Reason == discover.Excluded:
			named++
			others++
		case strings.HasPrefix(d.Reason, discover.Unselected):
			unselected++
			others++
		case len(d.Shape) > 1: // vectors are biases and the like
			others++
		}
	}
	switch {
	case selected == 1:
		return fmt.Sprintf("%s was selected but cannot be quantized: %s", msg.Quote(largest.Value.Path), largest.Reason)
	case selected > 1:
		return fmt.Sprintf("of %s selected none can be quantized; the largest, %s: %s", english.Plural(selected, "weight", ""), msg.Quote(largest.Value.Path), largest.Reason)
	case float > 0:
		return fmt.Sprintf("its settings keep %s in float", english.Plural(float, "weight", ""))
	case already > 0 && others == 0:
		return "all weights are quantized already"
	case already > 0:
		return "no weight was selected, and some are quantized already"
	case named > 0:
		return fmt.Sprintf("--include and --exclude leave no weight: they keep %s in float", english.Plural(named, "weight", ""))
	case unselected > 0:
		return "no weight was selected; --ops all selects those of more operators"
	}
	return "no weight was selected"
}

// warnOfHalf names the values that half cannot represent and that stay float32. It also names
// operators without bfloat16 kernels.
func (p *Plan) warnOfHalf() {
	for _, path := range slices.Sorted(maps.Keys(p.found.beyond)) {
		p.warn("%s stays in float32: it %s", msg.Quote(path), p.found.beyond[path])
	}
	if p.Half == nil {
		return
	}
	if len(p.Weights) == 0 && p.Half.Tensors() == 0 && p.Half.Casts == 0 {
		p.warn("nothing becomes %s%s", strings.ToLower(p.Half.To.String()), whyNoHalf(p.Half, p.graph.Opset))
	}
	if p.Half.To != dtype.BFloat16 {
		return
	}
	var lacking []string
	e := ranBy(p.opts.Discover.Target)
	for _, n := range half.WithoutBFloat16(p.Half.Graph, e.RunsBFloat16) {
		lacking = append(lacking, graph.Operator(n))
	}
	if len(lacking) > 0 {
		p.warn("%s refuses the model: it has no kernels with bfloat16 for %s", e.Name, msg.List(lacking))
	}
}

// whyNoHalf explains why nothing becomes half.
func whyNoHalf(m *half.Model, opset int64) string {
	if len(m.Kept) == 0 {
		return ": no node computes in float32"
	}
	reasons, later := map[string]int{}, map[string]bool{}
	for _, k := range m.Kept {
		text := k.Operator + " " + k.Reason
		reasons[text]++
		later[text] = k.Opset > 0
	}
	most := slices.MaxFunc(slices.Sorted(maps.Keys(reasons)), func(a, b string) int { return reasons[a] - reasons[b] })
	text := ": " + most
	if rest := len(m.Kept) - reasons[most]; rest > 0 {
		text += fmt.Sprintf(", and so with %s", english.Plural(rest, "other node", ""))
	}
	if later[most] {
		text += fmt.Sprintf("; the model has opset %d, which onnx.version_converter raises", opset)
	}
	return text
}
