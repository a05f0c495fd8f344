package checkpoint

import (
	"slices"
	"strings"

	"onnxquant/internal/discover"
	"onnxquant/onnxq"
	"onnxquant/rules"
)

// Missing lists weights of products and tables that keep the model's own values: nothing that was read has them, and names does
// not leave them out. Weights that options exclude count, too; small tensors do not.
func Missing(p *onnxq.Plan, read []*Weights, names *rules.Names) (list []string) {
	found := map[string]bool{}
	for _, w := range read {
		for _, name := range w.Tensors {
			found[name] = true
		}
	}
	for _, t := range p.Tensors {
		weight := t.Decision == onnxq.Quantize || t.Reason == discover.Excluded || t.Reason == discover.NotIncluded || t.Reason == onnxq.FormatFloat ||
			strings.HasPrefix(t.Reason, onnxq.Unselected) && slices.Contains(t.Consumers, "Gather:0")
		_, wanted := names.For(t.Name)
		made := len(t.From) > 0 && !slices.ContainsFunc(t.From, func(name string) bool { return !found[name] })
		if weight && wanted && !made && !found[t.Name] {
			list = append(list, t.Name)
		}
	}
	return list
}
