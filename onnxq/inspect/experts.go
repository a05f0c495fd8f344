package inspect

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"onnxquant/formats/dtype"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/half"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/internal/recognize"
)

// experts is the size in bytes of the decoded weight if a MoE reads it, else 0.
func (d *dequantizer) experts() uint64 {
	for _, l := range reach.Of(d.index, d.made, d.dims).Leaves {
		if discover.IsMoE(l.Node) && reach.OperatorOf(l.Use) != nil {
			n, _ := dtype.Elements(d.dims)
			return uint64(d.output.Bytes(n))
		}
	}
	return 0
}

// decodedExperts finds the weights of MoEs that are decoded at every run, with their sizes.
func decodedExperts(h *hazardSearch) (where []string) {
	for _, d := range h.dequantizers {
		if size := d.experts(); size > 0 {
			where = append(where, fmt.Sprintf("%s (decodes %s)", d.weight, humanize.IBytes(size)))
		}
	}
	return where
}

// halfExperts finds the MoE nodes of float16 that ONNX Runtime computes wrongly.
func halfExperts(h *hazardSearch) []string {
	var types func(*graph.Value) dtype.DType
	return h.contribNodes(func(n *onnxpb.NodeProto) bool {
		if graph.IntAttribute(n, "normalize_routing_weights") != 0 || h.x.Made(n) == nil {
			return false
		}
		if types == nil {
			types = half.Types(h.x)
		}
		return types(h.x.Made(n)) == dtype.Float16
	}, "MoE")
}

// expertChannels finds the QMoE nodes with one scale per channel.
func expertChannels(h *hazardSearch) []string {
	return h.contribNodes(func(n *onnxpb.NodeProto) bool {
		kind := string(graph.Attribute(n, "quant_type").GetS())
		return (kind == "" || kind == "int") && graph.IntAttribute(n, "block_size") <= 0
	}, "QMoE")
}

// wronglyWeighed finds the QMoE nodes whose experts ONNX Runtime weighs wrongly.
func wronglyWeighed(h *hazardSearch) []string {
	return h.contribNodes(func(n *onnxpb.NodeProto) bool {
		return graph.IntAttribute(n, "normalize_routing_weights") == 0 && !graph.HasInput(n, recognize.RouterWeights)
	}, "QMoE")
}
