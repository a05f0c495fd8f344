package layerfit

import (
	"sync"
	"time"

	"onnxquant/internal/linalg"
	"onnxquant/internal/quantize"
	"onnxquant/internal/secondorder"
	"onnxquant/spec"
)

// Cost is the cost of Run, without that of the process that runs the models.
type Cost struct {
	Groups int           // of layers
	Runs   float64       // on all samples: how often the whole model could run instead of the parts that do
	Memory int64         // bytes at once
	Disk   int64         // bytes of codes in temporary files, without parts of the model
	Time   time.Duration // roughly
}

// share is the share of the rate of products of large matrices that the search for codes reaches, with all other work.
const share = 0.6

// perSecond is the number of products that a worker adds up in a second. It is measured once.
var perSecond = sync.OnceValue(func() float64 { return share * linalg.Rate() })

// Add adds the cost of another job that runs before or after.
func (c *Cost) Add(o Cost) {
	c.Groups, c.Runs, c.Time = c.Groups+o.Groups, c.Runs+o.Runs, c.Time+o.Time
	c.Memory, c.Disk = max(c.Memory, o.Memory), max(c.Disk, o.Disk)
}

// Estimate returns the cost of Run.
func Estimate(layers []Layer, o Options) Cost {
	c := newCalibration(layers, nil, o)
	cost := c.cost(c.passes)
	if cost.Groups > 0 {
		cost.Runs += checkedModels / float64(heldOutEvery)
	}
	for _, l := range layers {
		w, bytes := l.Weight, int64(5) // of scales and zero points of a block
		size := w.Elements()
		if w.Encoding != nil {
			bytes, size = int64(w.Encoding.Bytes), 4*size
		}
		cost.Disk += 2 * (size + bytes*w.Outer*w.Blocks()*w.Inner) // twice: the codes of mse are stored too
	}
	return cost
}

// EstimateChannels returns the cost of Channels.
func EstimateChannels(layers []Layer, o Options) Cost {
	o.Algorithm = spec.AWQ
	return newCalibration(layers, nil, o).cost(allExponents)
}

// cost adds up the cost of all groups. passes is how often a Hessian is multiplied by a weight.
func (c *calibration) cost(passes func(*quantize.Weight) float64) (cost Cost) {
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
			products += float64(int64(in.parts)*k*k*k) / 6
			for _, i := range in.layers {
				w := c.layers[i].Weight
				products += float64(k*w.Elements()) * passes(w)
			}
		}
		cost.Memory = max(cost.Memory, sums+most)
	}
	cost.Time = time.Duration(products / perSecond() / float64(c.workers) * float64(time.Second))
	return cost
}

// solving is the memory for finding codes once sums are known: the factor, and panels.
func (c *calibration) solving(k int64) int64 {
	return int64(c.workers) * c.panelWidth(k) * k * perElement
}

// passes is how often the Hessian is multiplied by a weight.
func (c *calibration) passes(w *quantize.Weight) float64 {
	switch {
	case c.Algorithm == spec.Best:
		return secondorder.RefinePasses + 1.5 // with rounding as in gptq, and shift
	case c.Algorithm == spec.AWQ:
		return secondorder.ClipPasses(w.SecondOrder(w.Codec), int(w.K))
	}
	return 0.5
}
