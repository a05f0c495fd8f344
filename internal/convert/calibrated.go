package convert

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"

	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/layerfit"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/quantize"
	"onnxquant/internal/target"
	"onnxquant/internal/write"
	"onnxquant/onnxq/spec"
)

// calibrated are the codes that calibration data have led to. Its methods do nothing if it is nil.
type calibrated struct {
	result *layerfit.Result
	found  map[string]*quantize.Found // by path of the weight
	better map[*graph.Value]string    // weights that get algorithm mse instead, with the reasons
}

// close keeps the codes if the conversion failed.
func (c *calibrated) close(failed bool) {
	if c != nil {
		c.result.Close(failed)
	}
}

func (c *calibrated) errors() *layerfit.Errors {
	if c == nil {
		return nil
	}
	return &c.result.Error
}

// attach gives the weights of a plan the codes that were found for them.
func (c *calibrated) attach(p *Plan) {
	if c == nil {
		return
	}
	for i, w := range p.Weights {
		if w.Layers != nil {
			p.weights[i].Found = c.found[w.Value.Path]
		}
	}
}

// withSteps returns the plan with scales of 8 bits as calibration needs them: multiples of a step
// that follows from the whole weight. Weights whose scales are too different get others.
func (p *Plan) withSteps(ctx context.Context, found discover.Exceptions) (*Plan, error) {
	var which []int
	var weights []*quantize.Weight
	for i, w := range p.Weights {
		if w.Layers != nil && w.Choice.ScaleType.Stepped() {
			which, weights = append(which, i), append(weights, p.weights[i])
		}
	}
	if len(which) == 0 {
		return p, nil
	}
	workers, limit := p.workers()
	run := quantize.NewRun(weights, limit)
	if err := run.FindTensorScales(ctx, workers, func(int64) {}); err != nil {
		return nil, err
	}
	replaced := false
	for j, i := range which {
		if run.NeedsFloat16Scales(j) {
			found.Scales[p.Weights[i].Value], replaced = float16Scales, true
		}
		p.weights[i].Codec = run.Codec(j)
	}
	if !replaced {
		return p, nil
	}
	other, err := p.again(found)
	if err != nil {
		return nil, err
	}
	return other.withSteps(ctx, found)
}

// calibrate finds the codes of weights by the inputs that their layers get. Temporary files are
// in the folder of the output.
func (p *Plan) calibrate(ctx context.Context, path string) (_ *calibrated, err error) {
	if p.opts.Calibration == nil {
		return nil, nil
	}
	which, layers := p.layers()
	folder, err := os.MkdirTemp(filepath.Dir(path), ".onnxquant-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	o := p.calibration()
	o.State, o.Resume = path+".~calib", p.opts.Resume
	o.Write = func(ctx context.Context, name string, found []*quantize.Found, values []string) (string, error) {
		to := filepath.Join(folder, name+".onnx")
		return to, p.interim(ctx, to, which, found, values)
	}
	for _, out := range p.graph.File.Proto.GetGraph().GetOutput() {
		o.Outputs = append(o.Outputs, out.GetName())
	}
	if o.Key, err = p.key(ctx, layers, o); err != nil {
		return nil, err
	}
	r, err := layerfit.Run(ctx, layers, p.opts.Calibration, o)
	if err != nil {
		return nil, err
	}
	c := &calibrated{r, map[string]*quantize.Found{}, map[*graph.Value]string{}}
	for j, i := range which {
		v := p.Weights[i].Value
		if note := r.Notes[j]; note != "" {
			c.better[v] = note
		}
		c.found[v.Path] = r.Found[j]
	}
	return c, nil
}

// calibration returns the options of a calibration that do not depend on files.
func (p *Plan) calibration() layerfit.Options {
	return layerfit.Options{Best: p.opts.Discover.Algorithm == spec.Best, Threads: p.opts.Threads, Memory: p.opts.Memory, Progress: p.opts.Calibrating}
}

// CalibrationCost tells what calibration will take. It returns nil if there is none.
func (p *Plan) CalibrationCost() *layerfit.Cost {
	if p.opts.Calibration == nil {
		return nil
	}
	_, layers := p.layers()
	cost := layerfit.Estimate(layers, p.calibration())
	return &cost
}

// layers returns the layers that are calibrated, in the order of the graph, and which weights of
// the plan they have.
func (p *Plan) layers() (which []int, layers []layerfit.Layer) {
	for i, w := range p.Weights {
		if w.Layers != nil {
			which = append(which, i)
		}
	}
	slices.SortStableFunc(which, func(a, b int) int { return cmp.Compare(p.order(a), p.order(b)) })
	for _, i := range which {
		l := layerfit.Layer{Weight: p.weights[i]}
		for _, product := range p.Weights[i].Layers {
			l.Products = append(l.Products, layerfit.Product{
				Operation: product.Operation, Input: nameOf(product.Input), Initial: nameOf(product.Initial),
				Output: nameOf(product.Output), Beside: nameOf(product.Beside),
			})
		}
		layers = append(layers, l)
	}
	return which, layers
}

// nameOf is the name of a value, or "" for nil.
func nameOf(v *graph.Value) string {
	if v == nil {
		return ""
	}
	return v.Name
}

// order is the number of the first node that multiplies by a weight.
func (p *Plan) order(weight int) int {
	first := 0
	for i, product := range p.Weights[weight].Layers {
		if n := p.graph.Number(product.Node); i == 0 || n < first {
			first = n
		}
	}
	return first
}

// interim writes the part of the float model that computes some values. Weights that have codes
// are replaced by what these stand for.
func (p *Plan) interim(ctx context.Context, path string, which []int, found []*quantize.Found, values []string) error {
	file := p.graph.File
	view, err := file.View(graph.Only(file.Proto, values), func(t *onnxpb.TensorProto) (*modelfile.Payload, error) {
		for j, f := range found {
			if w := p.weights[which[j]]; f != nil && p.Weights[which[j]].Value.Tensor == t {
				return modelfile.Computed(w.Decoded(f), w.SourceBytes()), nil
			}
		}
		return file.Payload(t)
	})
	if err != nil {
		return err
	}
	x, err := graph.New(view)
	if err != nil {
		return err
	}
	plain, err := replan(x, Options{
		Discover: discover.Options{Format: spec.Float, Target: target.Of(spec.Portable), Activations: spec.WeightsOnly, Memory: p.opts.Memory},
		External: write.External{When: spec.ExternalAuto}, Threads: p.opts.Threads, Memory: p.opts.Memory, NoVerify: true,
	}, discover.Exceptions{})
	if err != nil {
		return err
	}
	_, err = plain.Convert(ctx, path)
	return err
}
