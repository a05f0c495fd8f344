package analyze

import (
	"context"
	"maps"
	"slices"

	"onnxquant/internal/access"
	"onnxquant/internal/convert"
	"onnxquant/onnxq"
)

// sizeOf is the exact size of the output of a plan.
func (a *analyzer) sizeOf(p *convert.Plan) (int64, error) {
	if a.output != "" {
		var err error
		if p, err = p.At(a.output); err != nil {
			return 0, err
		}
	}
	return p.Output.Size() + a.beyond, nil
}

// Beyond returns by how many bytes the output of a plan grows when its contents are read: values beyond
// the range of float16 or bfloat16 stay float32.
func Beyond(ctx context.Context, p *onnxq.Plan) (int64, error) {
	return beyond(ctx, access.Stages(p))
}

func beyond(ctx context.Context, planned *convert.Plan) (int64, error) {
	settled, err := planned.Settled(ctx)
	if err != nil {
		return 0, err
	}
	return settled.Output.Size() - planned.Output.Size(), nil
}

// rest is what the output has besides the weights, in bytes.
func (a *analyzer) rest() float64 {
	rest := a.FloatBytes
	for _, w := range a.Weights {
		rest -= w.Bytes
	}
	return float64(rest)
}

// growths returns by how many bytes an output is larger than one in float, for each weight. What
// some weights share counts for each of them in part; so does the rest of change, which is what the
// candidate changes in all of the model. Sums over mixes are too large by at most slack.
func growths(stages *convert.Plan, change int64) (each []float64, slack int64) {
	users := map[string]int64{}
	for _, w := range stages.Weights {
		change -= w.Growth.Own
		for key, bytes := range w.Growth.Shared {
			if users[key]++; users[key] == 1 {
				change -= bytes
			}
		}
	}
	for _, w := range stages.Weights {
		sum := float64(w.Growth.Own) + float64(change)/float64(len(stages.Weights))
		for _, key := range slices.Sorted(maps.Keys(w.Growth.Shared)) { // in one order, for sums of floats depend on it
			sum += float64(w.Growth.Shared[key]) / float64(users[key])
		}
		each = append(each, sum)
	}
	return each, uncertain(stages) + max(change, -change)
}

// uncertain is by how many bytes the structure of a mix may be smaller than what weights add each: by
// the digits of lengths, those in new names for weights of one name, and with external data the
// padding of tensors.
func uncertain(stages *convert.Plan) int64 {
	const digits, padding = 64, 3 * (4<<10 + 128)
	sum, names := int64(digits), map[string]bool{}
	for _, w := range stages.Weights {
		if names[w.Value.Name] {
			sum += digits
		}
		names[w.Value.Name] = true
		if stages.Output.External() {
			sum += padding
		}
	}
	return sum
}
