package tune

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/rules"
	"onnxquant/spec"
)

// Kind is a kind of candidates.
type Kind string

const (
	Half    Kind = "float16" // what stays in float; also beside the other kinds that do not have activations of 8 bits
	Weights Kind = "weights" // one format for all weights
	Mixes   Kind = "mixes"   // a format for each weight
	Dynamic Kind = "dynamic" // activations of 8 bits
	Static  Kind = "static"
)

// Kinds lists the kinds.
var Kinds = []Kind{Half, Weights, Mixes, Dynamic, Static}

// formats are tried for all weights, and for each weight in mixes.
var formats = []spec.Candidate{
	{Format: spec.Int4, Block: 32, ZeroPoint: true}, // weighed first, see anchors
	{Format: spec.Int2, Block: 16, ZeroPoint: true}, {Format: spec.Int2, Block: 32, ZeroPoint: true},
	{Format: spec.Int4, Block: 128}, {Format: spec.Int4, Block: 64}, {Format: spec.Int4, Block: 32},
	{Format: spec.Int4, Block: 64, ZeroPoint: true}, {Format: spec.Int4, Block: 16, ZeroPoint: true},
	{Format: spec.Int8, Block: spec.PerChannel}, {Format: spec.Int8, Block: 32},
}

// candidate is a conversion that can be tried.
type candidate struct {
	kind   Kind
	flags  []string
	label  string
	mix    *rules.Precision
	level  int    // of the mix, from fine to coarse
	class  string // candidates of a class are alike in their loss and cost
	speed  string // likewise in the time of a run
	bytes  int64  // planned
	noise  float64
	spread float64 // uncertainty of the logarithm of noise
	cost   float64 // in conversions by rounding to nearest

	limited bool // the conversion knows the limits of the goal
}

// group has the classes with the same algorithm.
func (c *candidate) group() string {
	words := strings.Fields(c.class)
	return "by " + words[len(words)-1]
}

// family has the classes whose losses go astray together: codes by rounding, codes by data, or codes of activations.
func (c *candidate) family() string {
	if c.kind != Weights && c.kind != Mixes {
		return string(c.kind)
	}
	switch c.group() {
	case "by " + string(spec.RTN), "by " + string(spec.MSE):
		return "rounded"
	}
	return "by data"
}

// kin are candidates of a kind and a family.
func (c *candidate) kin() string { return string(c.kind) + " " + c.family() }

// planner makes candidates, and plans them.
type planner struct {
	model   *onnxq.Model
	opts    *Options
	calib   []string // flags of calibration, or empty
	weights map[string]*analyze.Weight
	limit   float64 // a loss that the goal may allow
	found   []*candidate
	refused map[string]int // why candidates do not fit
}

// wants reports whether a kind is tried.
func (p *planner) wants(k Kind) bool { return len(p.opts.Try) == 0 || slices.Contains(p.opts.Try, k) }

// target are the flags of the target.
func (p *planner) target() []string {
	if p.opts.Target == "" {
		return nil
	}
	return []string{"--target", string(p.opts.Target)}
}

// common are the flags of all candidates, for these operators; nil: without the flag.
func (p *planner) common(ops []string) []string {
	o, flags := p.opts, p.target()
	if ops != nil {
		flags = append(flags, "--ops", strings.Join(ops, ","))
	}
	for _, glob := range o.Include {
		flags = append(flags, "--include", glob)
	}
	for _, glob := range o.Exclude {
		flags = append(flags, "--exclude", glob)
	}
	if o.Threads > 0 {
		flags = append(flags, "--threads", strconv.Itoa(o.Threads))
	}
	return flags
}

func (p *planner) ops() []string {
	if len(p.opts.Ops) == 0 {
		return []string{"all"}
	}
	return p.opts.Ops
}

// options are those of common.
func (p *planner) options() onnxq.Options {
	o := p.opts
	return onnxq.Options{Target: o.Target, Ops: p.ops(), Include: o.Include, Exclude: o.Exclude, Threads: o.Threads}
}

// algorithms find codes, from cheap to dear. Data make up for most of an error that is the same in all samples, as
// convolutions have it, and for less of others.
func (p *planner) algorithms(bits int) []algorithm {
	list := []algorithm{{spec.RTN, nil, 1, 0.6, 1}, {spec.MSE, []string{"--algorithm", "mse"}, 0.85, 0.7, 1.1}}
	if len(p.calib) > 0 {
		list = append(list, algorithm{spec.GPTQ, append([]string{"--algorithm", "gptq"}, p.calib...), 0.35, 1.1, 6})
	}
	if len(p.calib) > 0 && bits < 8 {
		list = append(list, algorithm{spec.Best, append([]string{"--algorithm", "best"}, p.calib...), 0.3, 1.1, 25})
	}
	return list
}

// algorithm has guesses of its loss, over that of rounding to nearest, of the uncertainty of that, and of its cost.
type algorithm struct {
	name   spec.Algorithm
	flags  []string
	loss   float64
	spread float64
	cost   float64
}

// halves are the types of what stays in float: as it is, and float16 where that is wanted.
func (p *planner) halves() [][]string {
	if p.wants(Half) {
		return [][]string{nil, {"--float16"}}
	}
	return [][]string{nil}
}

// all makes the candidates but mixes.
func (p *planner) all() {
	if p.wants(Half) {
		o := p.options()
		o.FloatType, o.Ops = spec.Float16, nil // no weights are selected
		p.add(&candidate{kind: Half, flags: append(p.target(), "--float16"), class: "float16", speed: "float16", noise: 1e-7, spread: 2, cost: 1}, o)
	}
	if p.wants(Weights) {
		for _, c := range formats {
			p.uniform(c)
		}
	}
	if p.wants(Dynamic) {
		p.dynamic()
	}
	if p.wants(Static) && len(p.calib) > 0 {
		p.static()
	}
}

// uniform adds one format for all weights.
func (p *planner) uniform(c spec.Candidate) {
	bits := c.Format.Bits()
	base := []string{"--bits", strconv.Itoa(int(bits)), "--block", strconv.Itoa(c.Block)}
	if c.ZeroPoint {
		base = append(base, "--zero-point")
	}
	for _, half := range p.halves() {
		o := p.options()
		o.Bits, o.Block, o.ZeroPoint = int(bits), c.Block, c.ZeroPoint
		o.FloatType = floatType(half)
		plan, err := p.model.Plan(o) // algorithms do not change it
		for _, a := range p.algorithms(int(bits)) {
			x := &candidate{kind: Weights, flags: slices.Concat(p.common(p.ops()), base, half, a.flags), spread: a.spread, cost: a.cost,
				class: "weights " + string(a.name), speed: speedOf("weights "+strconv.Itoa(int(bits)), half)}
			p.fit(x, o, plan, err)
			x.noise *= a.loss
		}
	}
}

// floatType is the type of what stays in float, as an option.
func floatType(half []string) spec.FloatType {
	if half == nil {
		return spec.FloatAsIs
	}
	return spec.Float16
}

// speedOf is a class of candidates that are alike in the time of a run, with its type of what stays in float.
func speedOf(class string, half []string) string {
	if half == nil {
		return class
	}
	return class + " float16"
}

// dynamic adds activations of 8 bits that are quantized at run time.
func (p *planner) dynamic() {
	all := [][]string{p.ops()}
	if len(p.opts.Ops) == 0 {
		all = append(all, []string{"MatMul", "Gemm"})
	}
	for _, ops := range all {
		for _, block := range [][]string{nil, {"--block", "-1"}} {
			o := p.options()
			o.Activations, o.Ops = spec.Dynamic, ops
			if block != nil {
				o.Block = spec.PerChannel
			}
			x := &candidate{kind: Dynamic, class: "dynamic", speed: "dynamic", spread: 1.5, cost: 1,
				flags: slices.Concat(p.common(ops), []string{"--activations", "dynamic"}, block)}
			p.add(x, o)
			x.noise += p.limit / 3
		}
	}
}

// static adds activations with ranges by data, which know the limits of the outputs. They are planned as weights of 8 bits.
func (p *planner) static() {
	flags := p.common(p.opts.Ops) // its own default has more operators
	g := &p.opts.Goal
	limits := []string{}
	if !p.opts.scored() {
		limit := func(name string, v *float64) {
			if v != nil {
				limits = append(limits, name, strconv.FormatFloat(*v, 'g', -1, 64))
			}
		}
		limit("--max-kl", g.MaxKL)
		limit("--min-sqnr", g.MinSQNR)
		limit("--max-drop", g.limits(false).Drop)
	}
	for _, limited := range [][]string{limits, nil} {
		o := p.options()
		o.Bits, o.Block = 8, spec.PerChannel
		x := &candidate{kind: Static, flags: slices.Concat(flags, []string{"--activations", "static"}, p.calib, limited),
			class: "static", speed: "static", spread: 1.5, cost: 20, limited: len(limited) > 0}
		p.add(x, o)
		x.noise += p.limit / 2
		if len(limits) == 0 {
			break
		}
	}
}

// add plans a candidate.
func (p *planner) add(x *candidate, o onnxq.Options) {
	plan, err := p.model.Plan(o)
	p.fit(x, o, plan, err)
}

// fit adds a candidate that was planned. Those that do not fit the model are left out.
func (p *planner) fit(x *candidate, o onnxq.Options, plan *onnxq.Plan, err error) {
	if err != nil {
		p.refuse(err)
		return
	}
	if x.kind != Half && plan.Coverage == 0 {
		p.refuse(errors.New("nothing is quantized"))
		return
	}
	if o.FloatType != "" && (plan.HalfPrecision == nil || plan.HalfPrecision.Tensors == 0) {
		return // nothing is left in float
	}
	x.bytes = plan.OutBytes
	if x.kind != Mixes && x.kind != Half {
		x.noise = p.noise(plan)
	}
	x.label = p.labelOf(x, plan)
	if !slices.ContainsFunc(p.found, func(y *candidate) bool { return slices.Equal(x.flags, y.flags) }) {
		p.found = append(p.found, x)
	}
}

// labelOf are the flags that other candidates do not have, or have otherwise. A mix has its level and the average bits of a code.
func (p *planner) labelOf(x *candidate, plan *onnxq.Plan) string {
	var words []string
	for i := 0; i < len(x.flags); i++ {
		switch f := x.flags[i]; {
		case f == "--allow-fallback":
		case f == "--precision-info":
			words = append(words, fmt.Sprintf("mix-%d:%.2f-bits", x.level, p.bits(plan)))
			i++
		case f == "--ops" && x.flags[i+1] != strings.Join(p.ops(), ","):
			words = append(words, f, x.flags[i+1])
			i++
		case slices.Contains([]string{"--target", "--include", "--exclude", "--threads", "--ops", "--calib", "--samples", "--ort-lib"}, f):
			i++
		default:
			words = append(words, f)
		}
	}
	return strings.Join(words, " ")
}

// bits is the average of an element of the weights, without scales.
func (p *planner) bits(plan *onnxq.Plan) float64 {
	sum, n := 0.0, 0.0
	for _, t := range plan.Tensors {
		if p.weights[t.Name] == nil {
			continue
		}
		elements, bits := 1.0, 32.0
		for _, d := range t.Shape {
			elements *= float64(d)
		}
		if t.Decision == onnxq.Quantize {
			bits = float64(t.Format.Bits())
		} else if plan.HalfPrecision != nil {
			bits = 16
		}
		sum, n = sum+elements*bits, n+elements
	}
	return sum / max(n, 1)
}

func (p *planner) refuse(err error) {
	text, _, _ := strings.Cut(err.Error(), ";")
	p.refused[text]++
}

// noise adds up the noises of the weights of a plan, each measured with the choice most like it.
func (p *planner) noise(plan *onnxq.Plan) (sum float64) {
	for _, t := range plan.Tensors {
		w := p.weights[t.Name]
		if w == nil || t.Decision != onnxq.Quantize {
			continue
		}
		best, distance := math.NaN(), math.Inf(1)
		for _, c := range w.Choices {
			if c.Candidate.Format == spec.Float {
				continue
			}
			d := 10 * math.Abs(float64(c.Candidate.Format.Bits())-float64(t.Format.Bits()))
			d += math.Abs(math.Log2(length(cmp.Or(c.Block, c.Candidate.Block), t.Shape) / length(t.Block, t.Shape)))
			if unsigned := strings.HasPrefix(string(t.Format), "u"); unsigned != c.Candidate.ZeroPoint {
				d++
			}
			if d < distance {
				best, distance = noiseOf(&c), d
			}
		}
		if !math.IsNaN(best) {
			sum += best
		}
	}
	return sum
}

// noiseOf is the damage of a choice or, if that is not measured, its squared error.
func noiseOf(c *analyze.Choice) float64 {
	if c.Damage != nil {
		return *c.Damage
	}
	return c.Error * c.Error
}

// length of a block, for which a whole channel is as long as the weight's longest axis.
func length(block int, shape []int64) float64 {
	if block > 0 {
		return float64(block)
	}
	return float64(slices.Max(append([]int64{2}, shape...)))
}

// mixes adds mixes between the finest and the coarsest.
func (p *planner) mixes(m *analyze.Mixes) error {
	const steps = 20
	low, high := 0.0, 0.0
	for _, w := range m.Weights() {
		least, most := math.Inf(1), 0.0
		for i := range w.Choices {
			if c := &w.Choices[i]; c.Candidate.Format != spec.Float {
				least, most = min(least, noiseOf(c)), max(most, noiseOf(c))
			}
		}
		if most > 0 {
			low, high = low+least, high+most
		}
	}
	// Weights may stay in float: the finest mix has less than all quantized.
	low, high = max(min(low, p.limit/30), p.limit/300), min(high, 30*p.limit)
	if !(high > low) {
		return nil
	}
	seen := map[int64]bool{}
	for i := range steps {
		bound := low * math.Pow(high/low, float64(i)/(steps-1))
		mix, err := m.Smallest(bound)
		if err != nil {
			return err
		}
		if seen[mix.OutBytes] {
			continue
		}
		seen[mix.OutBytes] = true
		p.mixed(mix, len(seen))
	}
	return nil
}

// mixed adds a mix.
func (p *planner) mixed(mix *analyze.Mix, level int) {
	for _, half := range p.halves() {
		o := p.options()
		o.Precision, o.AllowFallback = mix.Precision, true
		o.FloatType = floatType(half)
		plan, err := p.model.Plan(o)
		for _, a := range p.algorithms(4) {
			if a.name == spec.MSE && len(p.calib) > 0 {
				continue
			}
			p.fit(&candidate{kind: Mixes, mix: mix.Precision, level: level, noise: mix.Noise * a.loss, spread: a.spread, cost: a.cost, class: "mix " + string(a.name),
				speed: speedOf("mix", half), flags: slices.Concat(p.common(p.ops()), []string{"--allow-fallback", "--precision-info", mixWord(mix.Precision)}, half, a.flags)}, o, plan, err)
		}
	}
}

// mixWord stands for the path of a precision_info in the flags of a candidate.
func mixWord(p *rules.Precision) string {
	raw, _ := json.Marshal(p)
	sum := sha256.Sum256(raw)
	return mixMark + hex.EncodeToString(sum[:6])
}

const mixMark = "{mix}:"
