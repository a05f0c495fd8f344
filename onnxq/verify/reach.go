package verify

import (
	"cmp"
	"context"
	"math"
	"slices"

	"onnxquant/formats/errstat"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/recognize"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/ort"
	"onnxquant/internal/run/observe"
)

// Reach compares what the codes of an activation can represent with the values that it has in IN.
type Reach struct {
	Activation string     `json:"activation"` // in IN
	Codes      [2]float64 `json:"codes"`      // the least and the largest number that has a code
	Values     [2]float64 `json:"values"`     // the least and the largest value in IN
	Clipped    float64    `json:"clipped"`    // share of the values beyond the codes
	Used       float64    `json:"used"`       // share of the codes that lie between the values
	SQNR       float64    `json:"sqnr_db"`    // that the codes alone leave, as they clip and round
	Samples    int        `json:"samples"`    // runs of IN that the values are of

	step          float64
	n, beyond     int
	signal, noise float64 // sums of squares
}

// reachOf lists the activations that only OUT has as codes, each with one scale. in and out have float weights.
func reachOf(in, out *graph.Graph) (list []Reach) {
	f, seen := recognize.New(out), map[string]bool{}
	for _, p := range newTraced(in.File.Proto.GetGraph(), out.File.Proto.GetGraph(), nil).pairs {
		made := out.Made(p.node)
		if name := p.names[0]; !p.codes || made == nil || seen[name] {
			continue
		}
		if pair := f.Pair(made); pair != nil {
			if lo, hi, one := pair.Range(); one {
				list, seen[p.names[0]] = append(list, Reach{Activation: p.names[0], Codes: [2]float64{lo, hi}, step: pair.Step()}), true
			}
		}
	}
	return list
}

// add adds values of IN.
func (r *Reach) add(t *execute.Tensor) {
	if t == nil || !t.IsFloat() {
		return
	}
	for _, x := range t.Float64s() {
		if x-x != 0 {
			continue
		}
		if r.n++; r.n == 1 {
			r.Values = [2]float64{x, x}
		}
		r.Values = [2]float64{min(r.Values[0], x), max(r.Values[1], x)}
		r.signal += x * x
		off := max(r.Codes[0]-x, x-r.Codes[1])
		if off > r.step/2 {
			r.beyond++
			r.noise += off * off
		} else {
			r.noise += r.step * r.step / 12
		}
	}
}

// finish computes the shares and the SQNR of the sums.
func (r *Reach) finish() {
	r.Clipped = float64(r.beyond) / float64(r.n)
	r.Used = max(0, min(r.Values[1], r.Codes[1])-max(r.Values[0], r.Codes[0])) / (r.Codes[1] - r.Codes[0])
	r.SQNR = min(max(10*math.Log10(r.signal/r.noise), -errstat.Exact), errstat.Exact)
}

// The effort of reach, in runs of IN: fewer samples are taken if the values of one are in many groups, and more values go into one of
// many groups.
const (
	reachSamples = 4
	reachRuns    = 16
)

// reach runs IN for the values of the activations that OUT has as codes. What cannot be run is left out.
func (v *verifier) reach(ctx context.Context, runner execute.Runner, float string, used trial) {
	if len(v.coded) == 0 {
		return
	}
	progress := v.stage("comparing the ranges of activations")
	engine := (&observe.Engine{}).Reporting(v.overRuns(progress))
	if r, ok := runner.(*ort.Runner); ok {
		engine = observe.With(r.Plain())
	}
	inputs := used.inputs[:min(len(used.inputs), reachSamples)]
	v.runs = 1 + len(inputs) // with one group of activations
	var names []string
	var sets [][]string
	for _, r := range v.coded {
		names, sets = append(names, r.Activation), append(sets, []string{r.Activation})
	}
	groups, err := grouped(ctx, traceSide{engine: engine, path: float}, inputs[0], sets)
	if err != nil {
		return
	}
	groups = fewer(groups, reachRuns)
	inputs = inputs[:max(min(len(inputs), reachRuns/len(groups)), 1)]
	v.runs = 1 + len(groups)*len(inputs)
	done, ran := 0, 1
	for _, n := range groups {
		err := addReach(ctx, engine, float, names[done:done+n], inputs, v.coded[done:done+n], func() {
			if ran++; !engine.IsGo() {
				progress(int64(ran), int64(v.runs))
			}
		})
		if err != nil {
			return
		}
		done += n
	}
	list := slices.DeleteFunc(v.coded, func(r Reach) bool { return r.n == 0 || r.signal == 0 })
	for i := range list {
		list[i].finish()
		list[i].Samples = len(inputs)
	}
	slices.SortStableFunc(list, func(a, b Reach) int { return cmp.Compare(a.SQNR, b.SQNR) })
	v.report.Execution.Ranges = list
}

// fewer joins groups that follow each other, so that there are at most n: each opens the model anew.
func fewer(groups []int, n int) (joined []int) {
	for some := range slices.Chunk(groups, (len(groups)+n-1)/n) {
		sum := 0
		for _, g := range some {
			sum += g
		}
		joined = append(joined, sum)
	}
	return joined
}

// addReach adds the values of some activations. A session has these alone: ONNX Runtime keeps all that it may be asked for until the end
// of a run.
func addReach(ctx context.Context, engine *observe.Engine, path string, names []string, inputs [][]*execute.Tensor, list []Reach, ran func()) error {
	s, err := engine.Open(ctx, path, names...)
	if err != nil {
		return err
	}
	defer s.Close()
	for _, in := range inputs {
		values, err := valuesOf(s, in, names)
		if err != nil {
			return err
		}
		ran()
		for i, name := range names {
			list[i].add(values[name])
		}
	}
	return nil
}

// warnOfRanges names the activations whose codes do not fit their values, where the outputs are bad, or where the
// values come from the user's inputs.
func (v *verifier) warnOfRanges() {
	const named = 3
	if !v.bad() && len(v.opts.Inputs) == 0 {
		return
	}
	for i, r := range v.report.Execution.Ranges {
		if r.SQNR >= brokenAt || i == named {
			break
		}
		v.warn("the codes of activation %s reach from %.3g to %.3g, its values in IN from %.3g to %.3g: %.2g %% are clipped, and SQNR %.1f dB is left",
			msg.Quote(r.Activation), r.Codes[0], r.Codes[1], r.Values[0], r.Values[1], 100*r.Clipped, r.SQNR)
	}
}
