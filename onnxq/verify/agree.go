package verify

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"onnxquant/formats/errstat"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/evaluate"
	"onnxquant/internal/run/observe"
	"onnxquant/onnxq"
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/inspect"
)

// Disagreement says that two runs of one model differ by more than rounding. Then one of them is wrong, and so may be the figures.
type Disagreement struct {
	Model  string    `json:"model"`   // IN, as it is or with its weights as floats; OUT, with its weights as floats; or OUT itself, against the same with its weights as floats
	Runs   [2]string `json:"engines"` // that ran it
	Output string    `json:"output"`  // the worst
	SQNR   float64   `json:"sqnr_db"` // of that output, of the second run against the first
	Op     string    `json:"op,omitempty"`
	Node   string    `json:"node,omitempty"` // the first in the graph whose values differ; "" if it is not known
}

// String is the reason why a verdict is uncertain.
func (d *Disagreement) String() string {
	text := fmt.Sprintf("the verdict is uncertain: %s and %s compute %s differently, output %s with SQNR %.1f dB", d.Runs[0], d.Runs[1], d.Model, msg.Quote(d.Output), d.SQNR)
	if d.Op != "" {
		text += fmt.Sprintf(", first in %s %s", d.Op, msg.Quote(d.Node))
	}
	return text
}

const (
	farApart = 20.0 // dB between figures of runs, from which their cause is looked for
	agreed   = 40.0 // dB of an output in two engines; rounding of floats leaves far more
	rounded  = 15.0 // dB that products keep if their activations are rounded to 8 bits; they mostly keep far more
)

// The models that runs disagree about.
const (
	floatModel   = "IN"
	plainModel   = "IN with its weights as floats"
	decodedModel = "OUT with its weights as floats"
	codedModel   = "OUT itself"
)

// agree looks for the cause if OUT itself, in ONNX Runtime, has other errors than OUT with its weights as floats in another engine:
// the engines may compute the same model differently. float and quantized are the models with float weights; want and got are
// their outputs in the other engine.
func (v *verifier) agree(used trial, float, quantized string, want, got [][]*execute.Tensor) {
	ctx, cancel := v.limited()
	defer cancel()
	x := &v.report.Execution
	name, decoded, itself := farthest(x.Outputs, x.QuantizedRun.Outputs)
	if name == "" {
		return
	}
	in := floatModel
	if float != v.in {
		in = plainModel
	}
	if v.disagree(ctx, used, in, float, want) || v.disagree(ctx, used, decodedModel, quantized, got) {
		return
	}
	if decoded > itself {
		why := ""
		if itself < rounded {
			v.hazard = hazardOf(v.out)
		}
		switch {
		case v.hazard != nil:
			why = fmt.Sprintf("ONNX Runtime computes wrongly: %s (%s): %s", v.hazard.Text, v.hazard.Check, msg.ListNames(slices.Clone(v.hazard.Where)))
		case v.roundsActivations(decoded, itself):
			why = "ONNX Runtime's kernels round what they multiply to 8 bits"
		}
		if why != "" {
			v.warn("output %s of OUT itself has SQNR %.1f dB, with the weights of OUT as floats %.1f dB: %s", msg.Quote(name), itself, decoded, why)
			return
		}
	}
	x.Disagreement = &Disagreement{Model: codedModel + ", or its codes as floats,", Runs: [2]string{x.QuantizedRun.Engine, "onnxquant"}, Output: name, SQNR: min(decoded, itself)}
}

// farthest returns the output whose errors differ most between runs, if they differ by far.
func farthest(a, b []Output) (name string, x, y float64) {
	most := farApart
	for i := range min(len(a), len(b)) {
		p, q := a[i].SQNR, b[i].SQNR
		if apart := math.Abs(p - q); apart > most && min(p, q) < agreed && isFloat(a[i].DType) && a[i].Elements > 0 {
			name, x, y, most = a[i].Name, p, q, apart
		}
	}
	return name, x, y
}

// roundsActivations reports whether kernels of ONNX Runtime compute with 8 bits of activations in OUT.
func (v *verifier) roundsActivations(decoded, itself float64) bool {
	own := v.report.Execution.QuantizedRun
	var coded []compare.WeightMatch
	blocks := false
	for _, w := range v.report.Weights {
		if w.CodeType != "" {
			coded = append(coded, w)
			blocks = blocks || strings.HasSuffix(w.Form, "MatMulNBits") || w.Form == "QMoE"
		}
	}
	for _, o := range own.Exact {
		if math.Abs(o.SQNR-decoded) <= farApart {
			return true
		}
	}
	return blocks && itself >= rounded || v.computesWithCodes(coded)
}

// zeros are the hazards by which ONNX Runtime computes zeros from codes in blocks.
var zeros = []string{"ort-nested-half", "ort-nested-scales", "ort-shared-scales", "ort-scales"}

// hazardOf returns the first hazard of a model by which ONNX Runtime computes zeros, or nil.
func hazardOf(path string) *inspect.Hazard {
	m, err := onnxq.Open(path)
	if err != nil {
		return nil
	}
	defer m.Close()
	found := inspect.Model(m, onnxq.Options{}).Hazards
	for _, check := range zeros {
		if i := slices.IndexFunc(found, func(h inspect.Hazard) bool { return h.Check == check }); i >= 0 {
			return &found[i]
		}
	}
	return nil
}

// disagree runs a model with float weights in ONNX Runtime, and reports a disagreement if its outputs are not those of another engine. What
// cannot be run shows none.
func (v *verifier) disagree(ctx context.Context, used trial, model, path string, want [][]*execute.Tensor) bool {
	r := v.second
	v.stage(fmt.Sprintf("running %s in %s", model, r.Name()))
	exact, _ := exactly(r, path)
	s, err := exact.Session(ctx, path)
	if err != nil {
		return false
	}
	defer s.Close()
	got, err := used.runAll(s)
	if err != nil {
		return false
	}
	list, err := v.outputs(want, got)
	if err != nil {
		return false
	}
	d := &Disagreement{Model: model, Runs: [2]string{evaluate.Go.Name(), r.Name()}, SQNR: agreed}
	for _, o := range list {
		least := agreed
		if strings.HasSuffix(o.DType, "FLOAT16") {
			least = foldedHalfSQNR
		}
		if isFloat(o.DType) && o.Elements > 0 && !v.negligible(&o) && o.SQNR < min(least, d.SQNR) {
			d.Output, d.SQNR = o.Name, o.SQNR
		}
	}
	if d.Output == "" {
		return false
	}
	a, b := traceSide{engine: &observe.Engine{}, path: path}, traceSide{engine: observe.With(r.Plain()), path: path}
	d.Op, d.Node = v.firstApart(ctx, a, b, used.inputs[0])
	v.report.Execution.Disagreement = d
	return true
}

// firstApart is the first node of the main graph whose values differ between two runs.
func (v *verifier) firstApart(ctx context.Context, a, b traceSide, inputs []*execute.Tensor) (op, node string) {
	m, err := modelfile.Open(a.path)
	if err != nil {
		return "", ""
	}
	defer m.Close()
	pairs := newTraced(m.Proto.GetGraph(), m.Proto.GetGraph(), nil).pairs
	for i := range pairs {
		pairs[i].names[0] = pairs[i].names[1]
	}
	sums, err := v.alongside(ctx, []traceSide{a, b}, pairs, [][]*execute.Tensor{inputs})
	if err != nil {
		return "", ""
	}
	for i, s := range sums {
		if s[0].n > 0 && s[0].sqnr() < agreed && s[0].sqnr() > -errstat.Exact {
			return pairs[i].node.GetOpType(), nodeName(pairs[i].node)
		}
	}
	return "", ""
}
