package layerfit

import (
	"runtime"
	"sync"
	"time"

	"onnxquant/internal/linalg"
	"onnxquant/internal/operands"
	"onnxquant/internal/quantize"
	"onnxquant/internal/secondorder"
	"onnxquant/spec"
)

// Cost is the cost of Run.
type Cost struct {
	Groups   int           // of layers
	Runs     float64       // on all samples: how often the whole model could run instead of the parts that do
	Memory   int64         // bytes at once, of all processes
	Disk     int64         // bytes of temporary files at once
	Time     time.Duration // roughly, if all processors are free
	CPU      time.Duration // roughly, of all processors
	Free     float64       // the share of the processors that was free at the time; 0: unknown
	Measured bool          // false: without the runs of models, their memory and the values between parts
}

// Add adds the cost of another job that runs before or after.
func (c *Cost) Add(o Cost) {
	c.Groups, c.Runs, c.Time, c.CPU = c.Groups+o.Groups, c.Runs+o.Runs, c.Time+o.Time, c.CPU+o.CPU
	c.Memory, c.Disk = max(c.Memory, o.Memory), max(c.Disk, o.Disk)
}

// spend adds a time for which some processors work.
func (c *Cost) spend(d time.Duration, processors int) {
	c.Time += d
	c.CPU += d * time.Duration(processors)
}

// Inputs are what Estimate is given beside layers and options.
type Inputs struct {
	Activations           // asked for the number of samples, if there is Measured
	Model       int64     // bytes of the float model
	Measured    *Measured // may be nil
}

// Measured is what a run of the float model on one sample took.
type Measured struct {
	Open, Run time.Duration      // if all processors are free
	Making    float64            // runs on all samples, before the calibration: to make the samples
	Handed    float64            // numbers that these runs return
	Drawn     float64            // numbers that ids of samples are drawn by
	Memory    int64              // peak in bytes
	Apart     bool               // each model that runs has a process of its own, with this memory
	Shapes    map[string][]int64 // of values
}

// bytes is the size of some values of a sample.
func (m *Measured) bytes(names []string) (bytes int64) {
	for _, name := range names {
		bytes += 4 * operands.Value{Dims: m.Shapes[name]}.Len()
	}
	return bytes
}

// Observed lists the values that Estimate looks for in Measured: inputs of layers, outputs, and values that cross cuts.
func Observed(layers []Layer, o Options) (all []string) {
	c := newCalibration(layers, nil, o)
	var found names
	groups := c.groups()
	for _, group := range groups {
		found.add(c.observed(group)...)
	}
	found.add(o.Outputs...)
	for _, cut := range c.newFrontier(groups).cuts {
		found.add(cut.values...)
	}
	return found
}

// observed lists the inputs of the layers of a group.
func (c *calibration) observed(group []*inputs) []string {
	var found names
	for _, in := range group {
		for _, p := range c.layers[in.layers[0]].Products {
			found.add(p.Input, p.Second)
		}
	}
	return found
}

// What the parts of a calibration reach of the rate of products of large matrices, and what an element takes beside them, in
// products. All are measured: BenchmarkLayer, and profiles of calibrations.
const (
	sumsShare   = 0.9 // of the rate, for sums over inputs
	factorShare = 0.4 // for factors
	share       = 0.6 // for codes
	perWeight   = 260 // codes of mse of a weight
	perTry      = 40  // first scales of best: to try one for a weight
	perInput    = 100 // to look at an input of a layer
	perPatch    = 500 // to copy an element of a patch of a convolution
	perTarget   = 130 // for an element of a target, beside its products
	perByte     = 30  // to write a byte of a model, and to read it
	perHanded   = 300 // for a number that a run returns, all processes together
	perShare    = 600 // for the exponential of a logit
)

// session is how long it takes to start a process that runs a small part of a model.
const session = 150 * time.Millisecond

// perSecond is the number of products that a worker adds up in a second. It is measured once.
var perSecond = sync.OnceValue(linalg.Rate)

// freeNow is the share of all processors that is free. It is measured once.
var freeNow = sync.OnceValue(func() float64 { return linalg.Free(runtime.GOMAXPROCS(0), 100*time.Millisecond) })

// Estimate returns the cost of Run.
func Estimate(layers []Layer, of Inputs, o Options) Cost {
	c := newCalibration(layers, of.Activations, o)
	cost := c.cost(of, c.passes)
	if cost.Groups == 0 {
		return cost
	}
	cost.Runs += checkedModels / float64(heldOutEvery)
	var elements int64
	for _, l := range layers {
		w, bytes := l.Weight, int64(5) // of scales and zero points of a block
		size := w.Elements()
		if w.Encoding != nil {
			bytes, size = int64(w.Encoding.Bytes), 4*size
		}
		cost.Disk += 2 * (size + bytes*w.Outer*w.Blocks()*w.Inner) // twice: the codes of mse are stored too
		elements += w.Elements()
	}
	cost.Disk += 2 * of.Model // the float model, and one with codes
	products := float64(elements)*perWeight + checkedModels*float64(of.Model)*perByte
	cost.spend(c.duration(products), c.workers)
	if m := of.Measured; m != nil {
		cost.spend(time.Duration(float64(m.Run)*checkedModels*float64(c.checkedSamples())), runtime.GOMAXPROCS(0))
		cost.spend(time.Duration(float64(m.Run)*m.Making*float64(c.activations.Len())), runtime.GOMAXPROCS(0))
		outputs := float64(m.bytes(c.Outputs)/4) * checkedModels * float64(c.checkedSamples())
		cost.spend(oneWorker((m.Handed+outputs)*perHanded+m.Drawn*perShare), 1)
		cost.spend(checkedModels*m.Open, 1)
		cost.Free = freeNow()
		cost.Memory = max(cost.Memory, c.processes(m, 1, 1)+m.bytes(c.Outputs))
	}
	return cost
}

// EstimateChannels returns the cost of Channels.
func EstimateChannels(layers []Layer, of Inputs, o Options) Cost {
	o.Algorithm = spec.AWQ
	return newCalibration(layers, of.Activations, o).cost(of, allExponents)
}

// duration is how long all workers take for a number of products.
func (c *calibration) duration(products float64) time.Duration {
	return time.Duration(products / perSecond() / float64(c.workers) * float64(time.Second))
}

// oneWorker is how long one worker takes.
func oneWorker(products float64) time.Duration {
	return time.Duration(products / perSecond() * float64(time.Second))
}

// processes is the memory of n models that run side by side, of which a part is in memory.
func (c *calibration) processes(m *Measured, n int, part float64) int64 {
	if !m.Apart {
		return m.Memory
	}
	return int64(n) * int64(min(float64(m.Memory), emptyProcess+float64(m.Memory)*part))
}

// emptyProcess is the memory of a process that runs a small part of a model.
const emptyProcess = 45 << 20

// cost adds up the cost of all groups. passes is how often a Hessian is multiplied by a weight.
func (c *calibration) cost(of Inputs, passes func(*quantize.Weight) float64) (cost Cost) {
	m := of.Measured
	cost.Measured = m != nil
	var products float64
	groups := c.groups()
	sample := c.samples(groups)
	for i, group := range groups {
		cost.Groups, cost.Runs = cost.Groups+1, cost.Runs+sample[i]
		var sums, most int64
		for _, in := range group {
			k := c.layers[in.layers[0]].Weight.K
			sums += c.bytes(in)
			most = max(most, c.solving(k))
			products += float64(int64(in.parts)*k*k*k) / 6 / factorShare
			for _, i := range in.layers {
				products += c.codes(c.layers[i].Weight, passes)
			}
			if m != nil {
				products += c.sums(in, m) * float64(c.activations.Len())
			}
		}
		memory := sums + most
		if m != nil {
			models := len(c.models())
			memory += c.processes(m, models, sample[i]/float64(models)) + 2*m.bytes(c.observed(group))
			cost.spend(time.Duration(models)*min(m.Open, session), 1)
		}
		cost.Memory = max(cost.Memory, memory)
	}
	cost.spend(c.duration(products+cost.Runs*float64(of.Model)*perByte), c.workers)
	if m != nil {
		cost.spend(time.Duration(cost.Runs*float64(m.Run)*float64(c.activations.Len())), runtime.GOMAXPROCS(0))
		cost.spend(time.Duration(cost.Runs*float64(m.Open)), 1)
		cost.Disk = c.kept(groups, m)
	}
	return cost
}

// codes is the work for the codes of a weight, in products.
func (c *calibration) codes(w *quantize.Weight, passes func(*quantize.Weight) float64) float64 {
	each := float64(w.K)*passes(w)/share + perWeight
	if c.Algorithm == spec.Best {
		each += secondorder.GridTries(w.SecondOrder(w.Codec)) * perTry
	}
	return float64(w.Elements()) * each
}

// sums is the work for the sums over the inputs of layers in one sample, in products.
func (c *calibration) sums(in *inputs, m *Measured) (products float64) {
	shape := func(name string) operands.Value { return operands.Value{Dims: m.Shapes[name]} }
	s := &sample{0, shape, shape}
	k := int(c.layers[in.layers[0]].Weight.K)
	if r := c.routed(in); r != nil {
		return c.routedSums(in, r, m)
	}
	for n, p := range c.layers[in.layers[0]].Products {
		rows, err := c.rowsOf(p, k, in.parts, s)
		if err != nil {
			continue
		}
		each := float64(in.parts*k) * (float64(k)/2/sumsShare + perInput*float64(c.workers)) // one worker looks at inputs
		if _, ok := p.Operation.(operands.Convolution); ok {
			each += float64(in.parts*k) * perPatch * float64(c.workers)
		}
		for _, l := range in.layers {
			if c.targets(c.layers[l]) && n < len(c.layers[l].Products) {
				w := c.layers[l].Weight
				each += float64(w.Elements()) * (1/sumsShare + perTarget/float64(w.K))
			}
		}
		products += float64(rows.Len()) * each
	}
	return products
}

// routedSums is sums for rows that go to parts of their own.
func (c *calibration) routedSums(in *inputs, r operands.Routed, m *Measured) (products float64) {
	k := float64(c.layers[in.layers[0]].Weight.K)
	for _, p := range c.layers[in.layers[0]].Products {
		rows := r.All(operands.Value{Dims: m.Shapes[p.Input]}, operands.Value{Dims: m.Shapes[p.Second]})
		products += rows * (k*(k/2/sumsShare+perInput*float64(c.workers)) + float64(r.Kept())/4/sumsShare)
	}
	return products
}

// kept is the size of the values that are kept between parts of models, at once.
func (c *calibration) kept(groups [][]*inputs, m *Measured) (most int64) {
	frontier := c.newFrontier(groups)
	for i := range groups {
		var now int64
		for _, model := range c.models() {
			from, to := frontier.ends(i, model)
			for _, at := range []int{from, to} {
				if at <= 0 || at >= len(frontier.cuts) || !frontier.cuts[at].useful() {
					continue
				}
				now += m.bytes(frontier.cuts[at].values) * int64(c.activations.Len())
			}
		}
		most = max(most, now)
	}
	return most
}

// solving is the memory for finding codes once sums are known: the factor, and panels.
func (c *calibration) solving(k int64) int64 {
	bytes := int64(c.workers) * c.panelWidth(k) * k * perElement
	if c.Algorithm == spec.Best && c.copies(k) {
		bytes += 4 * k * k
	}
	if c.Algorithm == spec.Best && c.packs(k) {
		bytes += 4 * int64(linalg.PackedSize(int(k)))
	}
	return bytes
}

// passes is how often the Hessian is multiplied by a weight.
func (c *calibration) passes(w *quantize.Weight) float64 {
	switch {
	case c.Algorithm == spec.Best:
		return secondorder.RefinePasses(int(w.K), w.SecondOrder(w.Codec)) + 1.5 // with rounding as in gptq, and shift
	case c.Algorithm == spec.AWQ:
		return secondorder.ClipPasses(w.SecondOrder(w.Codec), int(w.K))
	}
	return 0.5
}
