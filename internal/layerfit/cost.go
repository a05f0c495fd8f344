package layerfit

import (
	"time"

	"onnxquant/internal/secondorder"
	"onnxquant/internal/work"
)

// Cost is what Run takes, without what runs the models.
type Cost struct {
	Groups int           // of layers
	Runs   int           // of models, each up to the whole one, on all samples
	Memory int64         // bytes at once
	Disk   int64         // bytes of codes in temporary files, without parts of the model
	Time   time.Duration // roughly
}

// perSecond is how many products a worker adds up in a second, with all else that it does for
// them: a third of what it reaches in large matrices.
const perSecond = 3e9

// Estimate tells what Run would take.
func Estimate(layers []Layer, o Options) Cost {
	c := &calibration{Options: o, layers: layers}
	c.workers, _ = work.Divide(o.Threads, o.Memory, 1)
	models := 1 // that run for a group
	if o.Best {
		models = 2
	}
	var cost Cost
	var products float64
	for _, group := range c.groups() {
		cost.Groups, cost.Runs = cost.Groups+1, cost.Runs+models
		var sums, most int64
		for _, in := range group {
			k := layers[in.layers[0]].Weight.K
			sums += c.bytes(in)
			most = max(most, c.solving(k))
			products += float64(int64(in.parts)*k*k*k) / 6
			for _, i := range in.layers {
				products += float64(k*layers[i].Weight.Elements()) * c.passes()
			}
		}
		cost.Memory = max(cost.Memory, sums+most)
	}
	if cost.Groups > 0 {
		cost.Runs += 3 // the check of the outputs, on some samples
	}
	for _, l := range layers {
		w, bytes := l.Weight, int64(5) // of what belongs to a block
		size := w.Elements()
		if w.Encoding != nil {
			bytes, size = int64(w.Encoding.Bytes), 4*size
		}
		cost.Disk += 2 * (size + bytes*w.Outer*w.Blocks()*w.Inner) // for mse, too
	}
	cost.Time = time.Duration(products / perSecond / float64(c.workers) * float64(time.Second))
	return cost
}

// solving is the memory for finding codes once sums are known: the factor, and panels.
func (c *calibration) solving(k int64) int64 {
	bytes := int64(c.workers) * c.panelWidth(k) * k * perElement
	if c.Best {
		bytes += 4 * k * k
	}
	return bytes
}

// passes is how often the Hessian is multiplied by a weight.
func (c *calibration) passes() float64 {
	if c.Best {
		return secondorder.SearchPasses + 2 // with shift
	}
	return 0.5
}
