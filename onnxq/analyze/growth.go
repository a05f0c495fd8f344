package analyze

import (
	"context"
	"maps"
	"slices"

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

// countRecord adds the record to the sizes that are estimated without.
func (a *analyzer) countRecord() {
	a.FloatBytes += a.record
	for i := range a.Totals {
		a.Totals[i].OutBytes += a.record
	}
	for i := range a.Frontier {
		a.Frontier[i].OutBytes += a.record
	}
	for i := range a.DamageFrontier {
		a.DamageFrontier[i].OutBytes += a.record
	}
}

// Beyond returns by how many bytes the output of a plan grows after its contents were read: values
// beyond the range of float16 or bfloat16 stay float32.
func Beyond(ctx context.Context, p *onnxq.Plan) (int64, error) {
	return beyond(ctx, p.Stages())
}

func beyond(ctx context.Context, planned *convert.Plan) (int64, error) {
	settled, err := planned.Settled(ctx)
	if err != nil {
		return 0, err
	}
	return settled.Output.Size() - planned.Output.Size(), nil
}

// fixedBytes is the size of the output without the weights, in bytes.
func (a *analyzer) fixedBytes() float64 {
	rest := a.FloatBytes
	for _, w := range a.Weights {
		rest -= w.Bytes
	}
	return float64(rest)
}

// growths returns, for each weight, how many bytes it adds to a float output. Bytes shared by several
// weights are divided among them. So is the rest of change, the growth of the whole model with this
// candidate. Sums over a mix exceed the real size by at most slack.
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

// uncertain limits how much smaller the structure of a mix may be than the sum over its weights. It
// depends on the digits of lengths, on numbers in new names and, with external data, on the padding of
// tensors.
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
