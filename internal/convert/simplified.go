package convert

import (
	"math"

	"onnxquant/calib"
	"onnxquant/internal/actpairs"
	"onnxquant/internal/balance"
	"onnxquant/internal/graph"
	"onnxquant/internal/simplify"
	"onnxquant/rules"
)

// simplify simplifies the model, if that is asked for. Ranges are checked before: they are of the model as opened.
func (l *planner) simplify() (err error) {
	given, s := l.input, l.opts.Simplified
	if s != nil {
		given = s.Original
	}
	if err := l.checkRanges(given); err != nil {
		return err
	}
	if s == nil && l.opts.Fold {
		if s, err = simplify.New(l.input); err != nil {
			return err
		}
	}
	if s == nil {
		return nil
	}
	l.given, l.input, l.folded = s.Original, s.Graph, s.Counts
	if h := l.opts.Half; h != nil && h.Ranges != nil {
		with := *h
		with.Ranges, l.opts.Half = withNew(h.Ranges, s.New), &with
	}
	if o := l.opts.Discover.Static; o != nil {
		with := *o
		with.Ranges, l.opts.Discover.Static = withNew(o.Ranges, s.New), &with
	}
	return nil
}

// balance gives activations factors, if that is asked for.
func (l *planner) balance() (err error) {
	if l.opts.Balanced != nil {
		l.input = l.opts.Balanced
		return nil
	}
	l.input, err = balance.Apply(l.input, l.opts.Balance)
	return err
}

// checkRanges checks that ranges are of a graph.
func (l *planner) checkRanges(x *graph.Graph) error {
	if h := l.opts.Half; h != nil && h.Ranges != nil {
		if err := actpairs.CheckRanges(x, h.Ranges); err != nil {
			return err
		}
	}
	if o := l.opts.Discover.Static; o != nil {
		return actpairs.CheckRanges(x, o.Ranges)
	}
	return nil
}

// withNew returns ranges with those of new values, as far as they follow from the others.
func withNew(given *rules.Ranges, list []simplify.NewValue) *rules.Ranges {
	if len(list) == 0 {
		return given
	}
	r := given.Clone()
	for _, v := range list {
		found := calib.Range{Min: math.Inf(-1), Max: math.Inf(1)}
		if sum, ok := r.Tensors[v.Sum]; ok {
			found.Min, found.Max = sum.Min-v.Added[1], sum.Max-v.Added[0]
		}
		if of, ok := r.Tensors[v.Of]; ok && v.Of != "" {
			ends := [4]float64{of.Min * v.Factors[0], of.Min * v.Factors[1], of.Max * v.Factors[0], of.Max * v.Factors[1]}
			found.Min, found.Max = max(found.Min, min(ends[0], ends[1], ends[2], ends[3])), min(found.Max, max(ends[0], ends[1], ends[2], ends[3]))
		}
		switch _, known := r.Tensors[v.Path]; {
		case known:
		case math.IsInf(found.Max-found.Min, 0):
			if r.NoRange[v.Sum] || r.NoRange[v.Of] {
				r.NoRange[v.Path] = true
			}
		case found.Min <= found.Max:
			r.Tensors[v.Path] = found
		}
	}
	return r
}

// of is a planner of another graph made from the same model.
func (l planner) of(input *graph.Graph) planner {
	return planner{given: l.given, input: input, folded: l.folded, opts: l.opts, TileLimit: l.TileLimit}
}
