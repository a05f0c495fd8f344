package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/half"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
	"onnxquant/internal/reach"
	"onnxquant/internal/recognize"
	"onnxquant/internal/target"
	"onnxquant/internal/write"
	"onnxquant/spec"
)

// Hazard is a part of a model that is known to fail, be slow or waste space in some runtime.
type Hazard struct {
	Check   string   `json:"check"`   // name of the check
	Runtime string   `json:"runtime"` // runtime, or "any"
	Effect  Effect   `json:"effect"`
	Text    string   `json:"text"`
	Where   []string `json:"where"` // nodes, tensors or versions
}

// Effect says how bad a hazard is.
type Effect string

const (
	EffectWrong   Effect = "wrong"   // it computes wrongly
	EffectRefused Effect = "refused" // it does not load or run
	EffectSlow    Effect = "slow"    // it is slower than necessary
	EffectWaste   Effect = "waste"   // it takes space for nothing
	EffectNote    Effect = "note"    // it is worth knowing
)

// check looks for one hazard. find returns the places.
type check struct {
	name    string
	runtime spec.Target // Portable: any runtime
	effect  Effect
	text    string
	find    func(*hazardSearch) []string
}

const (
	leastHazard  = 1 << 10 // bytes: smaller tensors are not reported
	blockedOpset = 21
)

// checks is the table of hazards, the worst of each runtime first.
var checks = []check{
	{"missing-import", spec.Portable, EffectRefused, "operators of a domain without opset_import", missingImports},
	{"block-opset", spec.Portable, EffectRefused, "DequantizeLinear with block_size before opset 21", eachDQ(func(h *hazardSearch, d *dequantizer) bool {
		return d.block != 0 && h.x.Opset < blockedOpset
	})},
	{"type-opset", spec.Portable, EffectRefused, "DequantizeLinear of a type that the opset does not support", eachDQ(func(h *hazardSearch, d *dequantizer) bool {
		return h.x.Opset < max(d.codes.Opset(), d.scales.Opset())
	})},
	{"embedded-2gib", spec.Portable, EffectRefused, "the model file is larger than 2 GiB, the limit of protobuf", largeFile},
	{"ir-behind", spec.Portable, EffectNote, "the IR version is older than the opset's", irBehind},
	{"dead-initializer", spec.Portable, EffectWaste, "initializers that nothing reads", deadInitializers},
	{"replaceable", spec.Portable, EffectSlow, "initializers that are graph inputs, which prevents constant folding", replaceable},
	{"subgraph-float", spec.Portable, EffectWaste, "float weights in subgraphs or functions of an otherwise quantized model", floatsInSubgraphs},

	{"ort-2bit-columns", spec.ORT, EffectWrong, "2-bit DequantizeLinear fused with MatMul if N is not a multiple of 4", eachDQ(func(h *hazardSearch, d *dequantizer) bool {
		return d.decoded(h.shapes).Spoilt()
	})},
	{"ort-nested-half", spec.ORT, EffectWrong, "DequantizeLinear of float16 in a body of If, Loop or Scan, fused with MatMul: all results are 0 unless session.qdq_matmulnbits_accuracy_level is 1", eachDQ(func(h *hazardSearch, d *dequantizer) bool {
		return d.decoded(h.shapes).Zeroed()
	})},
	{"ort-nested-scales", spec.ORT, EffectWrong, "MatMulNBits with accuracy_level 4 in a body of If, Loop or Scan, whose scales are no float32 constants: all results are 0", eachNBits(func(h *hazardSearch, n *onnxpb.NodeProto) bool {
		return nested(h, n) && h.weakScales(n)
	})},
	{"ort-scales", spec.ORT, EffectWrong, "MatMulNBits with accuracy_level 4 whose scales are no float32 constants: all results are 0 with optimizations off or ORT_ENABLE_BASIC", eachNBits(func(h *hazardSearch, n *onnxpb.NodeProto) bool {
		return !nested(h, n) && h.weakScales(n)
	})},
	{"ort-shared-scales", spec.ORT, EffectWrong, "float16 scales that several MatMulNBits with accuracy_level 4 share, in large models", sharedScales},
	{"ort-versions", spec.ORT, EffectRefused, "a newer opset or IR version than it knows", func(h *hazardSearch) []string { return h.tooNew(spec.ORT) }},
	{"ort-kernels", spec.ORT, EffectRefused, "operators that have no CPU kernel at the model's opset, though they may at an older one", withoutKernels},
	{"ort-outer-weight", spec.ORT, EffectRefused, "DequantizeLinear in a body of If, Loop or Scan, fused with its reader, whose codes are outside the body", eachDQ(func(h *hazardSearch, d *dequantizer) bool {
		return d.outer && d.nested && d.decoded(h.shapes).Unfused() == ""
	})},
	{"ort-types", spec.ORT, EffectRefused, "DequantizeLinear of FLOAT4E2M1, or with FLOAT8E8M0 or BFLOAT16 scales: no CPU kernel", eachDQ(func(_ *hazardSearch, d *dequantizer) bool {
		return !target.Of(spec.ORT).Has(d.codes) || !target.Of(spec.ORT).Has(d.scales)
	})},
	{"ort-bfloat16", spec.ORT, EffectRefused, "operators that have no CPU kernel with bfloat16", withoutBFloat16},
	{"ort-single-scale", spec.ORT, EffectRefused, "block_size with a single scale", eachDQ(func(_ *hazardSearch, d *dequantizer) bool {
		return d.block != 0 && len(d.dims) == 1 && d.scaleCount == 1
	})},
	{"ort-mixed-types", spec.ORT, EffectRefused, "DequantizeLinear with scales of another type than its output_dtype, fused with its reader", eachDQ(func(h *hazardSearch, d *dequantizer) bool {
		return d.output != d.scales && d.decoded(h.shapes).Unfused() == ""
	})},
	{"ort-nbits", spec.ORT, EffectRefused, "MatMulNBits with bits other than 2, 4 and 8, a block size above 256, or float zero points of 8-bit codes", refusedNBits},
	{"ort-float-zeros", spec.ORT, EffectSlow, "MatMulNBits with float zero points, which decodes at every run: one row takes 20 to 100 times as long as with zero points that are codes", floatZeros},
	{"ort-nbits-level", spec.ORT, EffectSlow, "MatMulNBits of 2 or 8 bits without accuracy_level 4, which decodes at every run and takes up to 30 times as long as float", slowNBits},
	{"ort-transpose", spec.ORT, EffectRefused, "a Transpose of float16 or bfloat16 that moves the first axis behind others, in front of a MatMul: it crashes with all optimizations, not up to ORT_ENABLE_EXTENDED", crashingTransposes},
	{"ort-activations", spec.ORT, EffectNote, "DequantizeLinear fused with its reader, which then rounds activations to 8 bits: 0.5 to 1 % in the outputs unless session.qdq_matmulnbits_accuracy_level is 1", eachDQ(func(h *hazardSearch, d *dequantizer) bool {
		return d.decoded(h.shapes).Unfused() == ""
	})},
	{"ort-half-experts", spec.ORT, EffectWrong, "MoE of float16 with normalize_routing_weights 0: the CPU kernel leaves out most experts, QMoE does not", halfExperts},
	{"ort-expert-weights", spec.ORT, EffectWrong, "QMoE without router_weights and with normalize_routing_weights 0: the CPU kernel computes as with 1", wronglyWeighed},
	{"ort-experts", spec.ORT, EffectSlow, "experts of a MoE behind DequantizeLinear: all are decoded at every run, which takes up to 100 times as long as float; --target ort and restyle --style nbits write QMoE", decodedExperts},
	{"ort-expert-channels", spec.ORT, EffectSlow, "QMoE with one scale per channel, which decodes the chosen experts at every run: one row takes 1.4 times as long as float, with blocks of 32 a quarter to a half", expertChannels},
	{"ort-unfused", spec.ORT, EffectSlow, "DequantizeLinear that is not fused with its reader and decodes at every run", eachDQ(func(h *hazardSearch, d *dequantizer) bool {
		return d.weightOnly() && d.experts() == 0 && d.decoded(h.shapes).Unfused() != ""
	})},

	{"ortweb-jsep-blocks", spec.ORTWeb, EffectWrong, "the older WebGPU kernels (JSEP, transformers.js 3): MatMulNBits with codes of 32 bytes or more in a block, or with a short last block", eachNBits(func(_ *hazardSearch, n *onnxpb.NodeProto) bool {
		const most, eight = 32, 8 // bytes of a block; bits
		b, block := graph.IntAttributeOr(n, "bits", 4), graph.IntAttribute(n, "block_size")
		return b != eight && block > 0 && (block*b/8 >= most || graph.IntAttribute(n, "K")%block != 0)
	})},
	{"ortweb-jsep-scalar", spec.ORTWeb, EffectWrong, "the older WebGPU kernels (JSEP, transformers.js 3): DequantizeLinear of 8 bits with a single scale, or of uint8 with zero points", eachDQ(func(_ *hazardSearch, d *dequantizer) bool {
		return (d.codes == dtype.Int8 || d.codes == dtype.Uint8) && (d.scaleCount == 1 || d.codes == dtype.Uint8 && d.zero)
	})},
	{"ortweb-jsep-inputs", spec.ORTWeb, EffectRefused, "the older WebGPU kernels (JSEP, transformers.js 3): MatMulNBits of 8 bits, or with a bias", eachNBits(func(_ *hazardSearch, n *onnxpb.NodeProto) bool {
		const bias = 5
		return graph.IntAttributeOr(n, "bits", 4) == 8 || len(n.Input) > bias && n.Input[bias] != ""
	})},

	{"openvino-types", spec.OpenVINO, EffectRefused, "DequantizeLinear of a type it does not support", eachDQ(func(_ *hazardSearch, d *dequantizer) bool { return !d.supported(spec.OpenVINO) })},
	{"openvino-short-block", spec.OpenVINO, EffectRefused, "a short last block", eachDQ(func(_ *hazardSearch, d *dequantizer) bool {
		return d.block != 0 && d.length()%d.block != 0
	})},
	{"openvino-vector", spec.OpenVINO, EffectRefused, "blocks in a tensor with one axis", eachDQ(func(_ *hazardSearch, d *dequantizer) bool {
		return d.block != 0 && len(d.dims) == 1 && d.scaleCount > 1
	})},
	{"openvino-scan", spec.OpenVINO, EffectRefused, "a Scan whose body reads the output of a DequantizeLinear outside it", eachDQ(func(h *hazardSearch, d *dequantizer) bool {
		return h.x.Scanned(d.made)
	})},
	{"openvino-blocks", spec.OpenVINO, EffectWrong, "a block size that is not a power of two", eachDQ(func(_ *hazardSearch, d *dequantizer) bool {
		return d.block < d.length() && d.block&(d.block-1) != 0
	})},
	{"openvino-odd", spec.OpenVINO, EffectWrong, "4-bit codes in a product with an odd K", eachDQ(func(_ *hazardSearch, d *dequantizer) bool {
		return d.codes.Bits() == 4 && d.sum() >= 0 && d.dims[d.sum()]%2 != 0
	})},
	{"openvino-axis", spec.OpenVINO, EffectWrong, "scales not along the reduction axis, or one per element of it", eachDQ(func(_ *hazardSearch, d *dequantizer) bool {
		return d.scaleCount > 1 && d.sum() >= 0 && (d.block != 0) != (d.axis == d.sum())
	})},

	{"tensorrt-versions", spec.TensorRT, EffectRefused, "a newer opset than it knows", func(h *hazardSearch) []string { return h.tooNew(spec.TensorRT) }},
	{"tensorrt-types", spec.TensorRT, EffectRefused, "DequantizeLinear of a type it does not support", eachDQ(func(_ *hazardSearch, d *dequantizer) bool { return !d.supported(spec.TensorRT) })},
	{"tensorrt-zero-point", spec.TensorRT, EffectRefused, "zero points other than 0", eachDQ(func(_ *hazardSearch, d *dequantizer) bool { return d.supported(spec.TensorRT) && d.shifted })},
	{"tensorrt-scales", spec.TensorRT, EffectRefused, "computed scales: it wants constants, or a DequantizeLinear of constants", eachDQ(func(_ *hazardSearch, d *dequantizer) bool { return d.computed })},
	{"tensorrt-blocks", spec.TensorRT, EffectRefused, "a block size it does not support for the type", eachDQ(func(_ *hazardSearch, d *dequantizer) bool {
		s, ok := target.Of(spec.TensorRT).Support(d.format())
		return ok && d.scaleCount > 1 && !s.Blocks.Fits(d.blockSize(), d.length())
	})},

	{"qnn-8bit", spec.QNN, EffectWrong, "BatchNormalization or CumSum on an activation of 8 bits", wrong8},
}

// hazardSearch is the input of the checks.
type hazardSearch struct {
	x            *graph.Graph
	shapes       *graph.Shapes
	in           *Inspection
	dequantizers []*dequantizer
}

// hazards runs all checks.
func hazards(x *graph.Graph, in *Inspection) []Hazard {
	h := &hazardSearch{x: x, shapes: graph.NewShapes(x), in: in}
	graph.WalkNodes(x.File.Proto, func(n *onnxpb.NodeProto) {
		if d := dequantizerOf(x, n); d != nil {
			h.dequantizers = append(h.dequantizers, d)
		}
	})
	found := []Hazard{}
	h.nameWeights()
	for _, c := range checks {
		if where := c.find(h); len(where) > 0 {
			found = append(found, Hazard{c.name, target.Of(c.runtime).Short, c.effect, c.text, where})
		}
	}
	return found
}

// nameWeights gives each DequantizeLinear the name of its weight. That differs from the name of its output if
// a Reshape or a Cast follows.
func (h *hazardSearch) nameWeights() {
	weights := map[*graph.Value][]string{} // by codes
	for _, w := range h.in.Quantized {
		if w.Value != nil && w.Constant != nil {
			codes := w.Constant.Decoder.Codes
			weights[codes] = append(weights[codes], w.Name)
		}
	}
	for _, d := range h.dequantizers {
		d.weight = d.made.Path
		if names := weights[d.stored]; len(names) == 1 {
			d.weight = names[0]
		}
	}
}

// eachDQ returns a find function that examines each DequantizeLinear.
func eachDQ(bad func(*hazardSearch, *dequantizer) bool) func(*hazardSearch) []string {
	return func(h *hazardSearch) (where []string) {
		for _, d := range h.dequantizers {
			if bad(h, d) {
				where = append(where, d.weight)
			}
		}
		return where
	}
}

func missingImports(h *hazardSearch) (where []string) {
	known := map[string]bool{}
	for _, o := range h.x.File.Proto.OpsetImport {
		known[o.GetDomain()] = true
		if graph.IsStandard(o.GetDomain()) {
			known[""], known["ai.onnx"] = true, true
		}
	}
	graph.WalkGraphs(h.x.File.Proto.Graph, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			if !known[n.GetDomain()] {
				known[n.GetDomain()] = true // report it once
				where = append(where, cmp.Or(n.GetDomain(), "ai.onnx"))
			}
		}
	})
	return where
}

func largeFile(h *hazardSearch) []string {
	if h.in.FileBytes > write.MaxEmbedded {
		return []string{fmt.Sprintf("%d bytes", h.in.FileBytes)}
	}
	return nil
}

func irBehind(h *hazardSearch) []string {
	if need := opset.IRFor(h.x.Opset); h.in.IR < need {
		return []string{fmt.Sprintf("IR %d, opset %d is of IR %d", h.in.IR, h.x.Opset, need)}
	}
	return nil
}

// tooNew compares the opset and IR version with the newest that a target loads.
func (h *hazardSearch) tooNew(t spec.Target) (where []string) {
	e := target.Of(t)
	if e.Opset != 0 && h.x.Opset > e.Opset {
		where = append(where, fmt.Sprintf("opset %d, it loads up to %d", h.x.Opset, e.Opset))
	}
	if e.IR != 0 && h.in.IR > e.IR {
		where = append(where, fmt.Sprintf("IR %d, it loads up to %d", h.in.IR, e.IR))
	}
	return where
}

// withoutKernels finds the operators that ONNX Runtime does not run at the opset.
func withoutKernels(h *hazardSearch) (where []string) {
	e := target.Of(spec.ORT)
	graph.WalkNodes(h.x.File.Proto, func(n *onnxpb.NodeProto) {
		if graph.IsStandard(n.GetDomain()) && !e.Runs(n.GetOpType(), h.x.Opset) {
			where = append(where, fmt.Sprintf("%s (%s) at opset %d", graph.Label(n), n.GetOpType(), h.x.Opset))
		}
	})
	return where
}

func deadInitializers(h *hazardSearch) (where []string) {
	trained := graph.TrainedNames(h.x.File.Proto)
	for _, v := range h.x.Values {
		if v.Node == nil && len(v.Uses) == 0 && !v.Output && !v.Input && !trained[v.Name] {
			where = append(where, v.Path)
		}
	}
	return where
}

func replaceable(h *hazardSearch) (where []string) {
	for _, v := range h.x.Values {
		if v.Input && !v.MustBeInput && graph.SizeOf(v.Tensor) >= leastHazard {
			where = append(where, v.Path)
		}
	}
	return where
}

// floatsInSubgraphs finds float tensors in subgraphs and functions that a known operator
// reads as weights.
func floatsInSubgraphs(h *hazardSearch) (where []string) {
	if len(h.in.Quantized) == 0 {
		return nil
	}
	for _, v := range h.x.Values {
		inner := strings.Contains(strings.TrimSuffix(v.Path, v.Name), "/")
		if !inner || !dtype.DType(v.Tensor.GetDataType()).Float() || graph.SizeOf(v.Tensor) < leastHazard {
			continue
		}
		if slices.ContainsFunc(v.Uses, func(u graph.Use) bool { return reach.OperatorOf(u) != nil }) {
			where = append(where, v.Path)
		}
	}
	return where
}

// eachNBits finds the MatMulNBits nodes that do something.
func eachNBits(does func(*hazardSearch, *onnxpb.NodeProto) bool) func(*hazardSearch) []string {
	return func(h *hazardSearch) []string {
		return h.contribNodes(func(n *onnxpb.NodeProto) bool { return does(h, n) }, "MatMulNBits")
	}
}

// nested reports whether a node is in a body of If, Loop or Scan.
func nested(h *hazardSearch, n *onnxpb.NodeProto) bool {
	g := h.x.Home(n).Graph
	return g != nil && g != h.x.File.Proto.Graph
}

// weakScales reports whether a MatMulNBits has accuracy_level 4, and scales that are computed or float16.
// Those in bfloat16 are refused, see ort-bfloat16.
func (h *hazardSearch) weakScales(n *onnxpb.NodeProto) bool {
	v := h.x.Source(n, 2)
	return graph.IntAttribute(n, "accuracy_level") == 4 && (v == nil || v.Tensor == nil || dtype.DType(v.Tensor.GetDataType()) == dtype.Float16)
}

// sharedScales finds MatMulNBits nodes with accuracy_level 4 whose float16 scales another one has.
func sharedScales(h *hazardSearch) (where []string) {
	readers := map[*graph.Value][]string{}
	var order []*graph.Value
	graph.WalkNodes(h.x.File.Proto, func(n *onnxpb.NodeProto) {
		if n.GetDomain() != graph.Contrib || n.GetOpType() != "MatMulNBits" || graph.IntAttribute(n, "accuracy_level") != 4 {
			return
		}
		if v := h.x.Source(n, 2); v != nil && v.Tensor != nil && dtype.DType(v.Tensor.GetDataType()) == dtype.Float16 {
			if readers[v] = append(readers[v], graph.Label(n)); len(readers[v]) == 2 {
				order = append(order, v)
			}
		}
	})
	for _, v := range order {
		where = append(where, readers[v]...)
	}
	return where
}

// slowNBits finds MatMulNBits nodes for which ONNX Runtime has a kernel of accuracy_level 4
// alone.
func slowNBits(h *hazardSearch) []string {
	return h.contribNodes(func(n *onnxpb.NodeProto) bool {
		b := graph.IntAttributeOr(n, "bits", 4)
		return (b == 2 || b == 8) && graph.IntAttribute(n, "accuracy_level") != 4
	}, "MatMulNBits")
}

// withoutBFloat16 finds the nodes for which ONNX Runtime has no kernel with bfloat16.
func withoutBFloat16(h *hazardSearch) (where []string) {
	for _, n := range half.WithoutBFloat16(h.x, target.Of(spec.ORT).RunsBFloat16) {
		where = append(where, fmt.Sprintf("%s (%s)", graph.Label(n), graph.Operator(n)))
	}
	return where
}

// crashingTransposes finds the nodes of half.TransposeCrashes that make half.
func crashingTransposes(h *hazardSearch) (where []string) {
	var types func(*graph.Value) dtype.DType
	graph.WalkNodes(h.x.File.Proto, func(n *onnxpb.NodeProto) {
		if !half.TransposeCrashes(h.x, n) {
			return
		}
		if types == nil {
			types = half.Types(h.x)
		}
		if t := types(h.x.Made(n)); t == dtype.Float16 || t == dtype.BFloat16 {
			where = append(where, graph.Label(n))
		}
	})
	return where
}

// wrong8 finds the nodes that QNN computes wrongly because they read activations of 8 bits.
func wrong8(h *hazardSearch) (where []string) {
	r := recognize.New(h.x)
	graph.WalkNodes(h.x.File.Proto, func(n *onnxpb.NodeProto) {
		v := h.x.Source(n, 0)
		if v == nil || !graph.IsStandard(n.GetDomain()) || !slices.Contains(target.Of(spec.QNN).Wrong8, n.GetOpType()) {
			return
		}
		if p := r.Pair(v); p != nil && p.Codes.Bits() == 8 {
			where = append(where, graph.Label(n))
		}
	})
	return where
}

// contribNodes finds the nodes of com.microsoft with one of these operators that are bad.
func (h *hazardSearch) contribNodes(bad func(n *onnxpb.NodeProto) bool, operators ...string) (where []string) {
	graph.WalkNodes(h.x.File.Proto, func(n *onnxpb.NodeProto) {
		if n.GetDomain() == graph.Contrib && slices.Contains(operators, n.GetOpType()) && bad(n) {
			where = append(where, graph.Label(n))
		}
	})
	return where
}

func refusedNBits(h *hazardSearch) []string {
	return h.contribNodes(func(n *onnxpb.NodeProto) bool {
		b := graph.IntAttributeOr(n, "bits", 4)
		return b != 2 && b != 4 && b != 8 || graph.IntAttribute(n, "block_size") > discover.MaxNBitsBlock || b == 8 && h.floatZero(n)
	}, "MatMulNBits")
}

// floatZeros finds MatMulNBits nodes that ONNX Runtime runs slowly because of their zero points.
func floatZeros(h *hazardSearch) []string {
	return h.contribNodes(func(n *onnxpb.NodeProto) bool {
		return graph.IntAttributeOr(n, "bits", 4) != 8 && h.floatZero(n)
	}, "MatMulNBits")
}

// floatZero reports whether the zero points of a MatMulNBits are stored floats.
func (h *hazardSearch) floatZero(n *onnxpb.NodeProto) bool {
	v := h.x.Source(n, 3)
	return v != nil && v.Tensor != nil && dtype.DType(v.Tensor.GetDataType()).Float()
}
