// Package layerfit finds the codes of weights by the inputs that their layers get, before a
// conversion writes them.
//
// [Run] gets the [Layer]s of a model and [Activations], which run models on samples. For a group
// of layers at a time it adds up the second moments of their inputs, and then lets package
// secondorder find the codes, which it stores in a file. No activations are kept, except for those
// of few rows that are held out: on these the error of each layer's output is compared with that
// of the algorithm mse, and the better codes are kept; at the end the same is done with the outputs
// of the model.
package layerfit

import (
	"context"
	"errors"
	"fmt"

	"onnxquant/internal/quantize"
	"onnxquant/internal/rows"
	"onnxquant/internal/work"
)

// Activations runs models on samples.
type Activations interface {
	// Len is the number of samples.
	Len() int
	// Key is the same for the same samples, and what runs models on them.
	Key(ctx context.Context) (string, error)
	// Run runs models, by their paths, side by side on the samples that are wanted, in their
	// order. It hands on the named values of each model: inputs, outputs and what is inside of its
	// graph.
	Run(ctx context.Context, models []string, names [][]string, wanted func(sample int) bool, do func(sample int, values [][]rows.Value) error) error
}

// Layer is a weight, seen as a matrix, with the products that it is a factor of.
type Layer struct {
	Weight   *quantize.Weight
	Products []Product
}

// Product is a value times a weight.
type Product struct {
	Operation rows.Operation
	Input     string // value whose rows are multiplied by the weight
	Initial   string // of a Recurrence: the first states, or ""
	Output    string // the product, perhaps with a bias; or "" if no value has it
	Beside    string // value that the product is added to, or ""
}

// Parts is how many parts the columns have that are multiplied by rows of their own.
func (l Layer) Parts() int { return l.Products[0].Operation.Parts() }

// columns is the number of columns of a part.
func (l Layer) columns() int {
	return int(l.Weight.Elements()/l.Weight.K) / l.Parts()
}

// Options say how codes are found.
type Options struct {
	Best    bool   // asymmetric, in sequence, with descent; else by the float model's values:
	Clip    bool   // scales that clip, and codes that are nearest; else GPTQ
	State   string // path of a file for what was found, which outlives an interruption
	Key     string // of the model, the data and the options: a State with another one is of no use
	Resume  bool   // go on from State, if it is there
	Begins  func() // called if it is not there, or of no use
	Threads int
	Memory  int64

	// Write writes the part of the model that computes some values, with the codes that were found
	// so far, decoded, and returns its path. The same name replaces what was written before.
	// Layers without codes have nil; without any, it is the float model.
	Write   func(ctx context.Context, name string, found []*quantize.Found, values []string) (path string, err error)
	Outputs []string // of the model, by which it is checked at the end

	// Progress is told the time that was spent, and what all takes, in nanoseconds; may be nil. The second is an
	// estimate, which changes.
	Progress func(done, total int64)
}

// Result has what was found for each layer. Close removes it.
type Result struct {
	Found []*quantize.Found // nil where nothing could be found
	Notes []string          // what differs from the request, or ""
	Error Errors            // of the outputs on the samples that were held out, over all layers

	store *store
}

// Errors compares codes found by activations with those of mse, by their relative squared errors.
type Errors struct {
	Found, MSE float64 // sums over the layers
	Layers     int     // that were compared
	Lost       int     // those that are better off with mse
	Few        int     // of all layers: with fewer rows of inputs than a row has elements

	Output, OutputMSE float64 // of the outputs of the model, on average
	Samples           int     // on which these were compared
	HeldOut           bool    // samples were held out; with few, rows of them are, and the outputs compared on all
	Refused           bool    // mse is better as a whole, so all layers got it
}

// Close closes the file with the codes. Unless keep is set, it removes it.
func (r *Result) Close(keep bool) error { return r.store.close(keep) }

// ErrKept is wrapped by errors after which Options.Resume goes on from what was found.
var ErrKept = errors.New("what calibration has found is kept")

// Run finds codes.
func Run(ctx context.Context, layers []Layer, a Activations, o Options) (_ *Result, err error) {
	s, before, err := openStore(o.State, o.Key, o.Resume)
	if err != nil {
		return nil, err
	}
	r := &Result{Found: make([]*quantize.Found, len(layers)), Notes: make([]string, len(layers)), store: s}
	if len(before.Layers) != len(layers) {
		before.Groups = 0
	}
	if o.Resume && before.Groups == 0 {
		o.Begins()
	}
	groups := 0
	defer func() {
		if err != nil {
			s.close(groups > 0)
			if groups > 0 {
				err = fmt.Errorf("%w (%w)", err, ErrKept)
			}
		}
	}()
	c := newCalibration(layers, a, o)
	c.Result = r
	all := c.groups()
	sample := c.work(all, c.passes)
	c.pace.running.all += checkedModels * float64(c.checkedSamples())
	for i, group := range all {
		if groups < before.Groups {
			c.recall(group, before)
			c.skip(group, sample[i])
		} else if err := c.group(ctx, group, sample[i]); err != nil {
			return nil, err
		}
		groups++
		if err := s.note(c.record(groups)); err != nil {
			return nil, err
		}
	}
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	c.pace.end()
	return r, nil
}

// calibration is the state of Run.
type calibration struct {
	Options
	*Result
	activations Activations
	layers      []Layer
	workers     int
	pace        *pace
}

func newCalibration(layers []Layer, a Activations, o Options) *calibration {
	c := &calibration{Options: o, activations: a, layers: layers}
	c.workers, _ = work.Divide(o.Threads, o.Memory, 1)
	c.pace = newPace(o.Progress)
	return c
}

// inputs are the layers that share their inputs, and so a Hessian, or one for each part.
type inputs struct {
	key    string
	parts  int
	layers []int
}

// groups divides the layers, in their order, into groups whose moments are added up at once.
func (c *calibration) groups() (groups [][]*inputs) {
	var all []*inputs
	byKey := map[string]*inputs{}
	for i, l := range c.layers {
		key := ""
		for _, p := range l.Products {
			key += fmt.Sprintf("%q %q %#v", p.Input, p.Initial, p.Operation)
		}
		in := byKey[key]
		if in == nil || c.layers[in.layers[0]].Weight.K != l.Weight.K {
			in = &inputs{key: key, parts: l.Parts()}
			byKey[key] = in
			all = append(all, in)
		}
		in.layers = append(in.layers, i)
	}
	most := len(all)
	if c.Best {
		most = (len(all)-1)/maxGroups + 1
	}
	var sum int64
	for _, in := range all {
		size := c.bytes(in)
		if n := len(groups); n == 0 || len(groups[n-1]) == most || sum+size > c.Memory/2 {
			groups, sum = append(groups, nil), 0
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], in)
		sum += size
	}
	return groups
}

// maxGroups is how many groups of layers are done in sequence at most. Each takes a run of two
// models on all samples.
const maxGroups = 32

// bytes is the memory for the moments of inputs.
func (c *calibration) bytes(in *inputs) int64 {
	k, parts := c.layers[in.layers[0]].Weight.K, int64(in.parts)
	size := 4 * k * k * parts
	wide := k * parts
	for _, i := range in.layers {
		if c.targets(c.layers[i]) {
			n := c.layers[i].Weight.Elements() / k
			size += 4 * k * n
			wide += n
		}
	}
	batch, held := rowsAtOnce(in.parts)
	return size + 4*wide*int64(batch+held)
}

// targets reports whether codes aim at the outputs of a layer in the float model.
func (c *calibration) targets(l Layer) bool { return c.Best && l.Products[0].Output != "" }
