package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/errstat"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq/compare"
)

// traced are the values of the main graph of OUT that IN has, too, in the order of OUT's nodes.
type traced struct {
	pairs   []tracePair
	out     *onnxpb.GraphProto
	weights map[string]float64 // SQNR by name
	makes   map[string]*onnxpb.NodeProto
	inIN    map[string]string // names in IN of values of OUT
	constant
}

// tracePair is a value of IN and its counterpart in OUT.
type tracePair struct {
	names [2]string
	node  *onnxpb.NodeProto // that makes it in OUT
	codes bool
}

// constant are the values of a graph that depend on no input, with the quantized weights they are made from.
type constant map[string][]string

// newConstant finds the constants of a graph.
func newConstant(g *onnxpb.GraphProto, weights map[string]float64) constant {
	c := constant{}
	stored := func(name string) {
		c[name] = nil
		if _, quantized := weights[name]; quantized {
			c[name] = []string{name}
		}
	}
	for _, t := range g.GetInitializer() {
		stored(t.GetName())
	}
	for _, n := range g.GetNode() {
		var from []string
		fixed := !slices.ContainsFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool { return a.G != nil })
		for _, in := range n.Input {
			weights, ok := c[in]
			fixed = fixed && (ok || in == "")
			from = append(from, weights...)
		}
		if !fixed {
			continue
		}
		slices.Sort(from)
		from = slices.Compact(from) // each once: a chain of sums would double them at each node
		for _, out := range n.Output {
			if c[out] = from; len(n.Input) == 0 { // a Constant
				stored(out)
			}
		}
	}
	return c
}

// newTraced finds pairs of values.
func newTraced(in, out *onnxpb.GraphProto, weights []compare.WeightMatch) *traced {
	g := &traced{out: out, weights: map[string]float64{}, makes: makers(out), inIN: map[string]string{}}
	for _, i := range in.GetInput() {
		g.inIN[i.GetName()] = i.GetName()
	}
	for _, w := range weights {
		if w.CodeType != "" {
			g.weights[w.Name] = w.SQNR
		}
	}
	g.constant = newConstant(out, g.weights)
	has, was := map[string]bool{}, makers(in)
	for _, i := range in.GetInput() {
		has[i.GetName()] = true
	}
	for name := range was {
		has[name] = true
	}
	clipped := removedClips(in, g.makes)
	for _, n := range out.GetNode() {
		for _, name := range n.Output {
			if _, fixed := g.constant[name]; fixed || name == "" {
				continue
			}
			pair := tracePair{names: [2]string{name, name}, node: n}
			if q := quantizerOf(n, g.makes); q != nil {
				pair.names[0], pair.codes = cmp.Or(clipped[q.Input[0]], q.Input[0]), true
			}
			if !has[pair.names[0]] {
				pair.names[0] = name
			}
			if has[pair.names[0]] && (pair.codes || !isClip(was[name]) || isClip(n)) { // else the codes clip later
				g.pairs = append(g.pairs, pair)
				g.inIN[name] = pair.names[0]
			}
		}
	}
	return g
}

// reads returns the values of OUT that the node of a pair needs, besides constants, and their counterparts in IN. It
// reports whether all of them have one.
func (g *traced) reads(p tracePair) (map[string]string, bool) {
	reads := map[string]string{}
	if p.codes {
		q := g.makes[p.node.Input[0]]
		reads[q.Input[0]] = p.names[0]
		return reads, true
	}
	for _, in := range allInputs(p.node) {
		if _, fixed := g.constant[in]; fixed || in == "" {
			continue
		}
		of, ok := g.inIN[in]
		if !ok {
			return nil, false
		}
		reads[in] = of
	}
	return reads, true
}

// quantizerOf returns the QuantizeLinear whose codes a DequantizeLinear reads, or nil.
func quantizerOf(n *onnxpb.NodeProto, makes map[string]*onnxpb.NodeProto) *onnxpb.NodeProto {
	if n.GetOpType() != "DequantizeLinear" || len(n.Input) == 0 {
		return nil
	}
	if q := makes[n.Input[0]]; q != nil && q.GetOpType() == "QuantizeLinear" && len(q.Input) > 0 {
		return q
	}
	return nil
}

// makers returns the nodes of a graph by the values that they make.
func makers(g *onnxpb.GraphProto) map[string]*onnxpb.NodeProto {
	m := map[string]*onnxpb.NodeProto{}
	for _, n := range g.GetNode() {
		for _, name := range n.Output {
			m[name] = n
		}
	}
	return m
}

func isClip(n *onnxpb.NodeProto) bool { return n.GetOpType() == "Relu" || n.GetOpType() == "Clip" }

// removedClips finds the Relus and Clips that only IN has, because the codes of activations clip as they do: by
// what they read.
func removedClips(in *onnxpb.GraphProto, makes map[string]*onnxpb.NodeProto) map[string]string {
	removed := map[string]string{}
	for _, n := range in.GetNode() {
		if isClip(n) && len(n.Input) > 0 && len(n.Output) > 0 && makes[n.Output[0]] == nil {
			removed[n.Input[0]] = n.Output[0]
		}
	}
	return removed
}

// points makes the points of pairs that have float values.
func (g *traced) points(sums [][2]pairSums) []TracePoint {
	points := []TracePoint{}
	pairOf := map[string]int{}
	for i, p := range g.pairs {
		if sums[i][0].n > 0 {
			pairOf[p.names[1]] = i
		}
	}
	levels := map[string]float64{} // SQNR of values of OUT; inputs are exact
	for _, n := range g.out.GetNode() {
		before := float64(errstat.Exact)
		for _, in := range allInputs(n) {
			if db, ok := levels[in]; ok {
				before = min(before, db)
			}
		}
		for _, name := range n.Output {
			i, compared := pairOf[name]
			if !compared {
				levels[name] = before
				continue
			}
			s, pair := &sums[i][0], g.pairs[i]
			p := TracePoint{
				Value: pair.names[0], Node: nodeName(n), Op: n.GetOpType(), Codes: pair.codes,
				Before: before, SQNR: s.sqnr(), Is: s.is, Was: s.was, pair: i,
			}
			p.Lost = min(p.Before, mostLost) - min(p.SQNR, mostLost)
			for _, in := range n.Input {
				for _, name := range g.constant[in] {
					p.Weights = append(p.Weights, TraceWeight{name, g.weights[name]})
				}
			}
			if own := &sums[i][1]; own.n > 0 {
				p.Itself = new(own.sqnr())
			}
			levels[name] = p.SQNR
			points = append(points, p)
		}
	}
	return points
}

// allInputs lists what a node reads, its bodies included.
func allInputs(n *onnxpb.NodeProto) []string {
	names := n.GetInput()
	for _, a := range n.GetAttribute() {
		for _, inner := range a.G.GetNode() {
			names = append(names[:len(names):len(names)], allInputs(inner)...)
		}
	}
	return names
}

func nodeName(n *onnxpb.NodeProto) string {
	if n.GetName() != "" || len(n.Output) == 0 {
		return n.GetName()
	}
	return n.Output[0]
}

// own returns the error that the codes of a point make alone, relative to the value; where that was not measured, how
// much more there is behind the node than before it. 0: it has no codes.
func (p *TracePoint) own() float64 {
	power := func(db float64) float64 { return math.Pow(10, -max(db, -40)/10) }
	switch {
	case p.Alone != nil:
		return power(*p.Alone)
	case p.Codes || len(p.Weights) > 0:
		return max(power(p.SQNR)-power(p.Before), 0)
	}
	return 0
}

// judge finds the first point whose codes break it, and those that do most harm.
func (t *Trace) judge() {
	t.Breaks = slices.IndexFunc(t.Points, func(p TracePoint) bool { return p.own() > math.Pow(10, -brokenAt/10) })
	best := 0.0
	for i := range t.Points {
		if own := t.Points[i].own(); own > best {
			t.Blame, best = i, own
		}
	}
}

// Lines describes the trace: the points whose codes do most harm, in order, and the first that breaks.
func (t *Trace) Lines() []string {
	if t == nil {
		return nil
	}
	if len(t.Points) == 0 {
		return []string{"no value could be compared: " + cmp.Or(t.Reason, "the models have none in common")}
	}
	lines := []string{fmt.Sprintf("%d values of OUT against IN's; the codes that do most harm, in order: SQNR alone, before, behind", len(t.Points))}
	for _, i := range t.Worst() {
		lines = append(lines, t.Points[i].String())
	}
	lines = append(lines, t.Verdict())
	if t.Reason != "" {
		lines = append(lines, t.Reason)
	}
	return lines
}

// mostTraced is the number of points that are shown.
const mostTraced = 10

// Worst returns the points whose codes do most harm, in order, with the first that breaks.
func (t *Trace) Worst() []int {
	var order []int
	for i := range t.Points {
		if t.Points[i].own() > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.Points[b].own(), t.Points[a].own()) })
	shown := order[:min(len(order), mostTraced)]
	if t.Breaks >= 0 && !slices.Contains(shown, t.Breaks) {
		shown = append(shown, t.Breaks)
	}
	slices.Sort(shown)
	return shown
}

// Verdict names the codes that break first, and those that do most harm.
func (t *Trace) Verdict() string {
	switch {
	case t.Blame < 0:
		return "no codes do harm"
	case t.Breaks < 0:
		return fmt.Sprintf("nothing falls below %g dB alone; most harm: %s", brokenAt, t.Points[t.Blame].blamed())
	case t.Breaks == t.Blame:
		return "the first that breaks, and most harm: " + t.Points[t.Blame].blamed()
	}
	return fmt.Sprintf("the first that breaks: %s; most harm: %s", t.Points[t.Breaks].blamed(), t.Points[t.Blame].blamed())
}

// String describes a point in one line.
func (p *TracePoint) String() string {
	alone := "        -"
	if p.Alone != nil {
		alone = fmt.Sprintf("%9s", decibels(*p.Alone))
	}
	text := fmt.Sprintf("%s %9s -> %8s  %s", alone, decibels(p.Before), decibels(p.SQNR), p.Name())
	if p.Itself != nil && math.Abs(*p.Itself-p.SQNR) > 0.5 {
		text += fmt.Sprintf("; OUT itself %s", decibels(*p.Itself))
	}
	return text
}

// Name names a point: codes with their range and that of the value in IN, or a node with its quantized weights.
func (p *TracePoint) Name() string {
	if p.Codes {
		return fmt.Sprintf("activation %s as codes: %.3g to %.3g, in IN %.3g to %.3g", msg.Quote(p.Value), p.Is[0], p.Is[1], p.Was[0], p.Was[1])
	}
	text := p.Op + " " + msg.Quote(p.Node)
	for i, w := range p.Weights {
		if i == 2 {
			return text + fmt.Sprintf(" and %d more", len(p.Weights)-2)
		}
		text += fmt.Sprintf(", weight %s (%s)", msg.Quote(w.Name), decibels(w.SQNR))
	}
	return text
}

// blamed names the codes of a point.
func (p *TracePoint) blamed() string {
	if p.Codes {
		return "codes of activation " + msg.Quote(p.Value)
	}
	worst := slices.MinFunc(p.Weights, func(a, b TraceWeight) int { return cmp.Compare(a.SQNR, b.SQNR) })
	return "weight " + msg.Quote(worst.Name)
}

func decibels(db float64) string {
	if db >= errstat.Exact {
		return "exact"
	}
	return fmt.Sprintf("%.1f dB", db)
}
