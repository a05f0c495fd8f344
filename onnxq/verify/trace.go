package verify

import (
	"context"
	"maps"
	"math"
	"slices"

	"onnxquant/formats/errstat"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/evaluate"
	"onnxquant/internal/run/execute/ort"
	"onnxquant/internal/run/observe"
)

// Trace compares values inside of the models, in the order in which OUT computes them: where errors enter.
type Trace struct {
	Engine  string       `json:"engine"`
	Samples int          `json:"samples"`
	Points  []TracePoint `json:"points"`
	Breaks  int          `json:"breaks"`           // the first of Points whose codes alone leave less than 10 dB; -1: none
	Blame   int          `json:"blame"`            // of Points: whose codes do most harm; -1: none
	Reason  string       `json:"reason,omitempty"` // why there are no points, or none of OUT itself
}

// TracePoint is a value of OUT, with the weights of OUT as floats, against the value of IN.
type TracePoint struct {
	Value   string        `json:"value"` // in IN
	Node    string        `json:"node"`  // that makes it in OUT
	Op      string        `json:"op"`
	Codes   bool          `json:"codes,omitempty"`   // behind the QuantizeLinear and DequantizeLinear of the value
	Weights []TraceWeight `json:"weights,omitempty"` // quantized weights that the node reads

	Before float64    `json:"before_db"` // the lowest SQNR of what the node reads; 999: exact
	SQNR   float64    `json:"sqnr_db"`
	Lost   float64    `json:"lost_db"`            // from Before to SQNR, both at most 60
	Alone  *float64   `json:"alone_db,omitempty"` // SQNR if only the codes here had errors: if the node read IN's values
	Is     [2]float64 `json:"range"`              // smallest and largest value of OUT
	Was    [2]float64 `json:"float_range"`
	Itself *float64   `json:"itself_db,omitempty"` // SQNR of OUT itself in ONNX Runtime

	pair int // of traced.pairs
}

// TraceWeight is a quantized weight.
type TraceWeight struct {
	Name string  `json:"name"`
	SQNR float64 `json:"sqnr_db"`
}

const (
	brokenAt   = 10.0 // dB
	mostLost   = 60.0 // dB; finer values are as good as exact
	tracedMost = 1    // samples
	traceBytes = 128 << 20
)

// trace compares the values of float and quantized, the models with float weights, on the inputs that the outputs
// were compared on.
func (v *verifier) trace(runner execute.Runner, float, quantized string, used trial) {
	t := &Trace{Points: []TracePoint{}, Breaks: -1, Blame: -1}
	v.report.Trace = t
	err := func() error {
		a, err := modelfile.Open(float)
		if err != nil {
			return err
		}
		defer a.Close()
		b, err := modelfile.Open(quantized)
		if err != nil {
			return err
		}
		defer b.Close()
		ctx, cancel := v.limited()
		defer cancel()
		engine := &observe.Engine{}
		if r, ok := runner.(*ort.Runner); ok {
			engine = observe.With(r.Plain())
		}
		g := newTraced(a.Proto.GetGraph(), b.Proto.GetGraph(), v.report.Weights)
		inputs := used.inputs[:min(len(used.inputs), tracedMost)]
		t.Engine, t.Samples = engine.Name(), len(inputs)
		sides := []traceSide{{engine, float, nil}, {engine, quantized, makers(b.Proto.GetGraph())}}
		if own := v.report.Execution.QuantizedRun; own != nil && own.Reason == "" {
			side, err := v.itselfTraced()
			if err != nil {
				return err
			}
			sides = append(sides, side)
		}
		sums, err := v.alongside(ctx, sides, g.pairs, inputs)
		if err != nil {
			return err
		}
		t.Points = g.points(sums)
		if err := v.alone(ctx, sides, g, t.Points, inputs[0]); err != nil {
			return err
		}
		t.judge()
		return nil
	}()
	if err != nil {
		t.Reason = err.Error()
	}
}

// traceSide is a model whose values are compared: IN, OUT with its weights as floats, OUT itself.
type traceSide struct {
	engine *observe.Engine
	path   string
	makes  map[string]*onnxpb.NodeProto // the values that it has; nil: all that are asked for
}

// itselfTraced returns OUT itself in ONNX Runtime.
func (v *verifier) itselfTraced() (side traceSide, err error) {
	r, err := v.findORT()
	if err != nil {
		return side, err
	}
	m, err := modelfile.Open(v.out)
	if err != nil {
		return side, err
	}
	defer m.Close()
	return traceSide{observe.With(r.AsUsers()), v.out, makers(m.Proto.GetGraph())}, nil
}

// pairSums are sums over a pair of values.
type pairSums struct {
	n             int
	signal, noise float64
	was, is       [2]float64 // ranges
}

func (s *pairSums) add(a, b *execute.Tensor) {
	if a == nil || b == nil || !a.IsFloat() || !b.IsFloat() || a.Len() != b.Len() {
		return
	}
	x, y := a.Float64s(), b.Float64s()
	for i, v := range x {
		e := y[i] - v
		if math.IsNaN(e) || math.IsInf(e, 0) {
			continue
		}
		if s.n == 0 {
			s.was, s.is = [2]float64{v, v}, [2]float64{y[i], y[i]}
		}
		s.n++
		s.signal, s.noise = s.signal+v*v, s.noise+e*e
		s.was = [2]float64{min(s.was[0], v), max(s.was[1], v)}
		s.is = [2]float64{min(s.is[0], y[i]), max(s.is[1], y[i])}
	}
}

func (s *pairSums) sqnr() float64 {
	switch {
	case s.noise == 0:
		return errstat.Exact
	case s.signal == 0:
		return -errstat.Exact
	}
	return min(max(10*math.Log10(s.signal/s.noise), -errstat.Exact), errstat.Exact)
}

// alongside runs models on the same inputs and adds up pairs of their values, as many at a time as fit into memory:
// of the second model with the first, and of the third.
func (v *verifier) alongside(ctx context.Context, sides []traceSide, pairs []tracePair, inputs [][]*execute.Tensor) (sums [][2]pairSums, err error) {
	sums = make([][2]pairSums, len(pairs))
	if len(pairs) == 0 {
		return sums, nil
	}
	names := func(side int, list []tracePair) (all []string) { // that the model has
		for _, p := range list {
			name := p.names[min(side, 1)]
			if m := sides[side].makes; (m == nil || m[name] != nil) && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
		return all
	}
	progress := v.stage("comparing values inside of the models")
	var every [][]string
	for _, p := range pairs {
		every = append(every, p.names[:1])
	}
	groups, err := grouped(ctx, sides[0], inputs[0], every)
	if err != nil {
		return nil, err
	}
	sessions := make([]execute.Session, len(sides))
	for i, side := range sides {
		if sessions[i], err = side.engine.Open(ctx, side.path, names(i, pairs)...); err != nil {
			return nil, err
		}
		defer sessions[i].Close()
	}
	done := 0
	for _, n := range groups {
		part := pairs[done : done+n]
		for _, in := range inputs {
			values := make([]map[string]*execute.Tensor, len(sides))
			for i, s := range sessions {
				if values[i], err = valuesOf(s, in, names(i, part)); err != nil {
					return nil, err
				}
			}
			for k, p := range part {
				for side := 1; side < len(sides); side++ {
					sums[done+k][side-1].add(values[0][p.names[0]], values[side][p.names[1]])
				}
			}
		}
		done += n
		progress(int64(done), int64(len(pairs)))
	}
	return sums, nil
}

// grouped divides sets of values of a model into groups that fit into memory. It returns the number of sets of each
// group.
func grouped(ctx context.Context, side traceSide, inputs []*execute.Tensor, sets [][]string) (groups []int, err error) {
	sizes, err := side.engine.Sizes(ctx, side.path, inputs, slices.Concat(sets...))
	if err != nil {
		return nil, err
	}
	n, held, at := 0, int64(0), 0
	for _, set := range sets {
		size := int64(0)
		for range set {
			size = min(size+sizes[at], 1<<60)
			at++
		}
		if n > 0 && held+size > traceBytes {
			groups = append(groups, n)
			n, held = 0, 0
		}
		n, held = n+1, held+size
	}
	return append(groups, n), nil
}

// alone measures what the codes at each point do by themselves: the Go engine runs the node of OUT with its weights as
// floats on the values that IN has. Nodes that it cannot run are left out.
func (v *verifier) alone(ctx context.Context, sides []traceSide, g *traced, points []TracePoint, inputs []*execute.Tensor) error {
	var coded []int
	var sets [][]string // of values of IN: the output, and what the node reads
	for i, p := range points {
		if reads, ok := g.reads(g.pairs[p.pair]); ok && (p.Codes || len(p.Weights) > 0) {
			coded, sets = append(coded, i), append(sets, append([]string{g.pairs[p.pair].names[0]}, slices.Collect(maps.Values(reads))...))
		}
	}
	if len(coded) == 0 {
		return nil
	}
	groups, err := grouped(ctx, sides[0], inputs, sets)
	if err != nil {
		return err
	}
	in, err := sides[0].engine.Open(ctx, sides[0].path, unique(slices.Concat(sets...))...)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := evaluate.Open(ctx, sides[1].path)
	if err != nil {
		return err
	}
	defer out.Close()
	progress, done := v.stage("running nodes by themselves"), 0
	for _, n := range groups {
		values, err := valuesOf(in, inputs, unique(slices.Concat(sets[done:done+n]...)))
		if err != nil {
			return err
		}
		for _, i := range coded[done : done+n] {
			pair, given := g.pairs[points[i].pair], map[string]*execute.Tensor{}
			reads, _ := g.reads(pair)
			for name, of := range reads {
				given[name] = values[of]
			}
			var s pairSums
			if made, err := out.Node(pair.names[1], given); err == nil {
				s.add(values[pair.names[0]], made)
			}
			if s.n > 0 {
				points[i].Alone = new(s.sqnr())
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		done += n
		progress(int64(done), int64(len(coded)))
	}
	return nil
}

// valuesOf runs a model for values, by name.
func valuesOf(s execute.Session, inputs []*execute.Tensor, names []string) (map[string]*execute.Tensor, error) {
	values := map[string]*execute.Tensor{}
	for _, in := range inputs {
		values[in.Name] = in
	}
	if len(names) == 0 {
		return values, nil
	}
	list, err := s.Run(inputs, names...)
	if err != nil {
		return nil, err
	}
	for i, t := range list {
		values[names[i]] = t
	}
	return values, nil
}

func unique(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}
