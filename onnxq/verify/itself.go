package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/provenance"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/ort"
	"onnxquant/internal/target"
	"onnxquant/onnxq/compare"
	"onnxquant/spec"
)

// QuantizedRun compares the outputs of OUT as ONNX Runtime runs it for users: with its own options of sessions,
// so with the kernels that compute with codes.
type QuantizedRun struct {
	Engine  string   `json:"engine,omitempty"`
	Library string   `json:"library,omitempty"` // the file
	Reason  string   `json:"reason,omitempty"`  // why it does not run
	Broken  bool     `json:"broken,omitempty"`  // it should run: IN does
	Outputs []Output `json:"outputs"`

	// Generated is the number of tokens after a prompt that both models read one by one, each with its own key-value cache, if
	// OUT has a cache of int8. Outputs has the outputs of these runs, too.
	Generated int `json:"generated,omitempty"`

	// Exact has the outputs with session.qdq_matmulnbits_accuracy_level at 1, if that makes a difference: then
	// ONNX Runtime does not round what MatMulNBits multiplies to 8 bits.
	Exact []Output `json:"accuracy_level_1,omitempty"`
}

// itself runs OUT in ONNX Runtime, if that is found. want are the outputs of IN; with asItIs, IN was not decoded
// for them.
func (v *verifier) itself(runner execute.Runner, used trial, want [][]*execute.Tensor, asItIs bool) {
	r, real := runner.(*ort.Runner)
	if !real {
		if v.opts.Engine != Auto && v.opts.Engine != "" {
			return
		}
		if r, v.lacked = v.findORT(); v.lacked != nil {
			return
		}
	}
	ctx, cancel := v.limited()
	defer cancel()
	generated := v.generation(used)
	run := func(which, path string, r *ort.Runner) ([][]*execute.Tensor, error) {
		v.stage(fmt.Sprintf("running %s in %s", which, r.Name()))
		s, err := openCached(ctx, r, path)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		all, err := used.runAll(s)
		if err != nil || generated == nil {
			return all, err
		}
		more, err := generated.run(s)
		return append(all, more...), err
	}
	users, own := r.AsUsers(), &QuantizedRun{Outputs: []Output{}}
	v.report.Execution.QuantizedRun = own
	var err error
	if generated != nil {
		own.Generated = len(generated.ids[0]) - generated.prompt
	}
	if !asItIs || generated != nil { // IN has codes: compare with IN as it is too
		if want, err = run("IN itself", v.in, users); err != nil {
			own.Reason = fmt.Sprintf("it does not run IN itself: %v", err)
			return
		}
	}
	got, err := run("OUT itself", v.out, users)
	own.Engine, own.Library = users.Name(), r.Library()
	if err == nil {
		own.Outputs, err = v.outputs(want, got)
	}
	if err != nil {
		own.Reason, own.Outputs = err.Error(), []Output{}
		own.Broken = ctx.Err() == nil && (errors.Is(err, ort.ErrEnded) || !v.elsewhere)
		if own.Broken && !real { // unless ONNX Runtime does not run IN, either
			_, err = run("IN itself", v.in, users)
			own.Broken = err == nil
		}
		return
	}
	if !real {
		v.second = r
	}
	if !slices.ContainsFunc(v.report.Weights, func(w compare.WeightMatch) bool { return w.Form == "DequantizeLinear" }) {
		return
	}
	if got, err = run("OUT itself", v.out, r); err == nil {
		if exact, err := v.outputs(want, got); err == nil && differ(own.Outputs, exact) {
			own.Exact = exact
		}
	}
}

// differ reports whether outputs have other errors.
func differ(a, b []Output) bool {
	const (
		matters = 0.5 // dB
		small   = 90
	)
	for i := range a {
		if math.Abs(min(a[i].SQNR, small)-min(b[i].SQNR, small)) > matters {
			return true
		}
	}
	return false
}

// elsewhere reports whether a model is meant for other runtimes than ONNX Runtime on a CPU: it was made for
// one, or it has types or an opset that ONNX Runtime does not take. For bfloat16 ONNX Runtime has few kernels there.
func elsewhere(m *onnxpb.ModelProto) bool {
	cpu := target.Of(spec.ORT)
	for _, s := range provenance.Of(m) {
		words := strings.Fields(s.Options)
		i := slices.Index(words, "--target")
		if i >= 0 && i+1 < len(words) && !slices.Contains([]spec.Target{spec.Portable, spec.ORT}, spec.Target(words[i+1])) {
			return true
		}
	}
	for _, o := range m.OpsetImport {
		if cpu.Opset > 0 && o.GetDomain() == "" && o.GetVersion() > cpu.Opset {
			return true
		}
	}
	lacks := false
	has := func(typ dtype.DType) { lacks = lacks || !cpu.Has(typ) || typ == dtype.BFloat16 }
	stored := func(t *onnxpb.TensorProto) {
		if t != nil {
			has(dtype.DType(t.GetDataType()))
		}
	}
	graph.WalkGraphs(m.GetGraph(), func(g *onnxpb.GraphProto) {
		for _, t := range g.GetInitializer() {
			stored(t)
		}
	})
	graph.WalkNodes(m, func(n *onnxpb.NodeProto) {
		for _, a := range n.GetAttribute() {
			if stored(a.GetT()); n.GetOpType() == "Cast" && a.GetName() == "to" {
				has(dtype.DType(a.GetI()))
			}
		}
	})
	return lacks
}

// limited returns a context for the runs of an engine.
func (v *verifier) limited() (context.Context, context.CancelFunc) {
	limit := v.opts.patience(sizeOf(v.in) + sizeOf(v.out))
	if limit == 0 {
		return context.WithCancel(v.ctx)
	}
	stopped := fmt.Errorf("stopped after %v", limit.Round(time.Second))
	if v.opts.Timeout == 0 {
		stopped = fmt.Errorf("%w; --timeout TIME lets it take more", stopped)
	}
	return context.WithTimeoutCause(v.ctx, limit, stopped)
}
