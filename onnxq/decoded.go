package onnxq

import (
	"cmp"
	"slices"
	"strings"

	"onnxquant/internal/convert"
	"onnxquant/internal/graph"
	"onnxquant/internal/target"
)

// Decoded describes weights of an operator that ONNX Runtime decodes at every run, on a CPU. Other operators
// compute with the codes, or their weights are decoded once, when the model is loaded.
type Decoded struct {
	Operator string   `json:"operator"` // that reads them
	Weights  []string `json:"weights"`  // the largest first
	Bytes    int64    `json:"bytes"`    // that a run decodes: their size as floats

	// How many times as long as with floats the operator takes, from the shape that loses least to the
	// one that loses most, of those that were measured; 0: none was.
	LeastTime float64 `json:"least_time,omitempty"`
	MostTime  float64 `json:"most_time,omitempty"`
}

// decodedOf lists what ONNX Runtime decodes at every run, the operator with the most bytes first.
func decodedOf(p *convert.Plan) (list []Decoded) {
	x := p.Graph()
	shapes, bytes := graph.NewShapes(x), map[string]int64{}
	for i := range p.Weights {
		w := &p.Weights[i]
		if len(w.Reach.Leaves) == 0 || !w.AtEveryRun(strings.Contains(w.Form.String(), "DequantizeLinear"), x, shapes) {
			continue
		}
		op := w.Reach.Leaves[0].Node.GetOpType()
		at := slices.IndexFunc(list, func(d Decoded) bool { return d.Operator == op })
		if at < 0 {
			at = len(list)
			list = append(list, Decoded{Operator: op})
			list[at].LeastTime, list[at].MostTime, _ = target.Decoding(op)
		}
		list[at].Weights = append(list[at].Weights, w.Value.Path)
		list[at].Bytes += w.Decision.Bytes
		bytes[w.Value.Path] = w.Decision.Bytes
	}
	for _, d := range list {
		slices.SortStableFunc(d.Weights, func(a, b string) int { return cmp.Compare(bytes[b], bytes[a]) })
	}
	slices.SortStableFunc(list, func(a, b Decoded) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list
}
