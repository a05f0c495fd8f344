// Package layerfit finds the codes of weights from the inputs of their layers, on calibration data,
// before a conversion writes them.
//
// [Run] gets the [Layer]s of a model and [Activations], which run models on samples. It returns a
// [Result], which the caller owns and closes: the codes of each layer, in a temporary file. For one
// group of layers at a time, Run adds up the second moments of the inputs. Package secondorder then
// finds the codes. Activations are not kept, except for a few held-out rows. On these rows, Run
// compares the output error of each layer with that of algorithm mse and keeps the better codes. At
// the end it does the same with the outputs of the model.
package layerfit

import (
	"context"
	"errors"
	"fmt"

	"onnxquant/formats/dtype"
	"onnxquant/internal/operands"
	"onnxquant/internal/quantize"
	"onnxquant/internal/work"
	"onnxquant/spec"
)

// Activations runs models on samples.
type Activations interface {
	// Len is the number of samples.
	Len() int
	// Key is the same for the same samples, and what runs models on them.
	Key(ctx context.Context) (string, error)
	// Run runs several models, or parts of models, side by side on the wanted samples, in order, and hands
	// on the values of each. Its error wraps ErrNotKept if values could not be kept, or are there no more.
	Run(ctx context.Context, parts []Part, wanted func(sample int) bool, do func(sample int, values [][]operands.Value) error) error
	// Kept describes the values that are kept in a folder.
	Kept(folder string) ([]Kept, error)
}

// Part is a model, or a part of one, that runs on samples.
type Part struct {
	Path   string   // "" if all values are in From
	Values []string // that are handed on: inputs, outputs or values inside of the graph
	From   string   // folder with values that were kept, which the part takes as inputs; or ""
	Keep   []string // values that are kept for the part behind this one
	To     string   // folder for these
}

// Kept describes a value that is kept.
type Kept struct {
	Name string
	Type dtype.DType
	Rank int
}

// ErrNotKept is wrapped by errors about values that could not be kept, or are there no more.
var ErrNotKept = errors.New("the values between two parts of the model are not there")

// Layer is a weight, seen as a matrix, with the products that it is a factor of.
type Layer struct {
	Weight   *quantize.Weight
	Products []Product
	Bias     bool // its product has a bias, to which Found.Shift may be added
}

// Product is a value times a weight.
type Product struct {
	Operation operands.Operation
	Input     string // value whose rows are multiplied by the weight
	Second    string // of a Recurrence: the first states; of Experts: the router's logits; or ""
	Output    string // the product, perhaps plus a bias; "" if the model has no such value
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
	// Algorithm is Best, GPTQ or AWQ. Best takes the layers in sequence: each gets the inputs that
	// result from the codes before it. GPTQ and AWQ take the float model's inputs. AWQ searches
	// clipping scales and rounds to nearest.
	Algorithm spec.Algorithm
	// Quantized says that Write quantizes activations, too, in models other than Float. Then all algorithms take the
	// layers in sequence, and aim at the products of the float model.
	Quantized bool
	State     string // path of a file for the codes found, which survives an interruption
	Key       string // of the model, the data and the options: a State with another one is of no use
	Resume    bool   // go on from State, if it is there
	Shared    string // folder with the codes that FindShare found for all layers, or ""
	Begins    func() // called if it is not there, or of no use
	Threads   int
	Memory    int64
	Alone     int64 // what one layer may take, if it is more than Memory: the codes do not depend on it

	// Write writes the part of the model that computes some values, with the codes found so far
	// decoded, and returns its path. A file written before under the same name is replaced. found is
	// nil for layers without codes; if it is nil altogether, Write writes the float model.
	// from, if not "", is a folder with values that are kept and need not be computed. If nothing else is
	// wanted, path is "".
	Write   func(ctx context.Context, name string, found []*quantize.Found, values []string, from string) (path string, err error)
	Outputs []string // of the model, by which it is checked at the end

	// Cut lists the values that nodes behind the first product of some layers need from the nodes before
	// it. It returns false if the model cannot be cut there.
	Cut func(layers []int) ([]string, bool)

	// Progress, if not nil, is called with the time spent and the estimated total time, in
	// nanoseconds. The estimate changes.
	Progress func(done, total int64)
}

// Result has the codes of each layer. Close removes them.
type Result struct {
	Found   []*quantize.Found // nil for layers without codes
	Notes   []string          // why the codes are not those requested, or ""
	Experts []FallbackExperts // that have other codes than those requested
	Error   Errors            // of the outputs on the samples that were held out, over all layers

	store *store
}

// Errors compares the codes found with the codes of mse, by relative squared errors of outputs.
type Errors struct {
	Found, MSE float64 // sums over the layers
	Layers     int     // that were compared
	Lost       int     // layers whose error is smaller with mse, so they got its codes
	Columns    int64   // of weights, for which best was tried
	GPTQ       int64   // of these, columns with the codes of gptq, which are better
	Shifted    int     // layers whose bias is corrected
	Few        int     // of all layers: with fewer rows of inputs than a row has elements

	Output, OutputMSE float64 // of the outputs of the model, on average
	Samples           int     // on which these were compared
	HeldOut           bool    // false: there are too few samples to hold any out, so only rows were, and the outputs are compared on all samples
	Refused           bool    // mse is better as a whole, so all layers got it
}

func newResult(layers int, s *store) *Result {
	return &Result{Found: make([]*quantize.Found, layers), Notes: make([]string, layers), Experts: make([]FallbackExperts, layers), store: s}
}

// add adds the errors of other layers.
func (e *Errors) add(o Errors) {
	e.Layers, e.Found, e.MSE = e.Layers+o.Layers, e.Found+o.Found, e.MSE+o.MSE
	e.Columns, e.GPTQ, e.Lost, e.Few, e.Shifted = e.Columns+o.Columns, e.GPTQ+o.GPTQ, e.Lost+o.Lost, e.Few+o.Few, e.Shifted+o.Shifted
}

// Close closes the file with the codes. Unless keep is set, it removes it.
func (r *Result) Close(keep bool) error { return r.store.close(keep) }

// ErrKept is wrapped by errors after which Options.Resume can continue.
var ErrKept = errors.New("the progress of the calibration is kept")

// KeptError is an error after which Options.Resume can continue.
type KeptError struct{ Err error }

func (e *KeptError) Error() string   { return fmt.Sprintf("%v (%v)", e.Err, ErrKept) }
func (e *KeptError) Unwrap() []error { return []error{e.Err, ErrKept} }

// Keep returns an error after which Options.Resume can continue: err itself if it says so.
func Keep(err error) error {
	if errors.Is(err, ErrKept) {
		return err
	}
	return &KeptError{err}
}

// Run finds codes.
func Run(ctx context.Context, layers []Layer, a Activations, o Options) (_ *Result, err error) {
	if o.Shared != "" && o.Algorithm != spec.GPTQ {
		return nil, ErrShares(o.Algorithm)
	}
	s, before, err := openStore(o.State, o.Key, o.Resume)
	if err != nil {
		return nil, err
	}
	r := newResult(len(layers), s)
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
				err = Keep(err)
			}
		}
	}()
	c := newCalibration(layers, a, o)
	c.Result = r
	all := c.groups()
	from := shared{c.Shared, c.Key}
	if c.Shared != "" {
		if err := from.check(c.allInputs()); err != nil {
			return nil, err
		}
	}
	c.frontier = c.newFrontier(all)
	if before.Groups == 0 {
		c.frontier.remove() // left by a process that died
	}
	sample := c.work(all, c.passes)
	c.pace.running.all += checkedModels * float64(c.checkedSamples())
	for i, group := range all {
		if groups < before.Groups {
			c.recall(group, before)
			c.skip(group, sample[i])
		} else if c.Shared != "" {
			if err := c.takeGroup(ctx, from, group); err != nil {
				return nil, err
			}
			c.skip(group, sample[i])
		} else if err := c.group(ctx, i, group, sample[i], nil); err != nil {
			return nil, err
		}
		groups++
		if err := s.note(c.record(groups)); err != nil {
			return nil, err
		}
		c.frontier.forget(i)
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
	frontier    *frontier
	each        []Errors // of each layer
}

func newCalibration(layers []Layer, a Activations, o Options) *calibration {
	c := &calibration{Options: o, activations: a, layers: layers, each: make([]Errors, len(layers))}
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

// allInputs lists the inputs of layers, in the order of the layers.
func (c *calibration) allInputs() (all []*inputs) {
	byKey := map[string]*inputs{}
	for i, l := range c.layers {
		key := ""
		for _, p := range l.Products {
			key += fmt.Sprintf("%q %q %#v", p.Input, p.Second, p.Operation)
		}
		in := byKey[key]
		if in == nil || c.layers[in.layers[0]].Weight.K != l.Weight.K {
			in = &inputs{key: key, parts: l.Parts()}
			byKey[key] = in
			all = append(all, in)
		}
		in.layers = append(in.layers, i)
	}
	return all
}

// groups divides the layers, in their order, into groups whose moments are added up at once.
func (c *calibration) groups() [][]*inputs { return c.grouped(c.allInputs()) }

func (c *calibration) grouped(all []*inputs) (groups [][]*inputs) {
	most := len(all)
	if c.sequential() {
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

// maxGroups is how many groups of layers are done in sequence at most. Each takes a run of parts of two
// models on all samples.
const maxGroups = 32

// bytes is the memory for the moments of inputs.
func (c *calibration) bytes(in *inputs) int64 { return c.bytesOf(in, c.partsAtOnce(in)) }

// bytesOf is the memory for the moments of n parts.
func (c *calibration) bytesOf(in *inputs, n int) int64 {
	k, parts := c.layers[in.layers[0]].Weight.K, int64(n)
	size := 4 * k * k * parts
	if r := c.routed(in); r != nil {
		size += r.Kept() * parts
	}
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
func (c *calibration) targets(l Layer) bool {
	return c.sequential() && l.Products[0].Output != ""
}

// sequential reports whether each layer gets the inputs that result from the codes before it.
func (c *calibration) sequential() bool { return c.Algorithm == spec.Best || c.Quantized }
