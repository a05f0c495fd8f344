package layerfit

import (
	"time"

	"onnxquant/internal/quantize"
)

// pace estimates the progress of a calibration in time. The rate so far predicts the remaining time.
// Running models and searching for codes have separate rates, because their ratio depends on the
// model.
type pace struct {
	tell             func(done, total int64) // may be nil
	now              func() time.Time
	begun, last      time.Time
	running, fitting effort
}

// effort is work of one kind, in any unit.
type effort struct {
	done, all float64
	took      time.Duration
	each      time.Duration // guess for a unit, before any is done
}

// left is the time for the remaining work.
func (e *effort) left() time.Duration {
	each := float64(e.each)
	if e.done > 0 {
		each = float64(e.took) / e.done
	}
	return time.Duration(each * max(e.all-e.done, 0))
}

func newPace(tell func(done, total int64)) *pace {
	p := &pace{tell: tell, now: time.Now}
	p.begun = p.now()
	p.last = p.begun
	return p
}

// addTime adds the time since the last call to a kind of work. Nothing is told before a model ran: until then
// the time that this takes is not known.
func (p *pace) addTime(e *effort, units float64) {
	now := p.now()
	e.done, e.took, p.last = e.done+units, e.took+now.Sub(p.last), now
	if p.tell != nil && p.running.done > 0 {
		done := now.Sub(p.begun)
		p.tell(int64(done), int64(done+p.running.left()+p.fitting.left()))
	}
}

// end tells that all is done.
func (p *pace) end() {
	if p.tell != nil {
		done := int64(p.now().Sub(p.begun))
		p.tell(done, done)
	}
}

// work adds up the work of all groups. passes is the number of times that the Hessian is multiplied by
// a weight. sample is, for each group, the work of its parts on one sample, in runs of the whole model.
func (c *calibration) work(groups [][]*inputs, passes func(*quantize.Weight) float64) (sample []float64) {
	sample = c.samples(groups)
	for i, group := range groups {
		for _, in := range group {
			for _, l := range in.layers {
				c.pace.fitting.all += c.products(l, passes)
			}
		}
		c.pace.running.all += sample[i] * float64(c.activations.Len())
	}
	c.pace.fitting.each = c.duration(1 / share)
	return sample
}

// samples returns, for each group, the work of its parts on one sample, in runs of the whole model. The weights
// of a part stand for its work: the parts reach from the cut that they begin at to the layers of the group.
// The part of a model that cannot be cut begins at the inputs.
func (c *calibration) samples(groups [][]*inputs) []float64 {
	before := make([]float64, len(groups)+1) // weights before each group
	for i, group := range groups {
		before[i+1] = before[i]
		for _, in := range group {
			for _, l := range in.layers {
				before[i+1] += float64(c.layers[l].Weight.Elements())
			}
		}
	}
	frontier := c.frontier
	if frontier == nil {
		frontier = c.newFrontier(groups)
	}
	work := make([]float64, len(groups))
	for i := range groups {
		for _, model := range c.models() {
			from, _ := frontier.ends(i, model)
			if from < 0 || !frontier.cuts[from].useful() {
				from = 0
			}
			work[i] += (before[i+1] - before[from]) / before[len(groups)]
		}
		work[i] *= float64(c.runsOf(groups[i]))
	}
	return work
}

// skip subtracts the work of a group whose codes are already known.
func (c *calibration) skip(group []*inputs, sample float64) {
	c.pace.running.all -= sample * float64(c.activations.Len())
	for _, in := range group {
		for _, i := range in.layers {
			c.pace.fitting.all -= c.products(i, c.passes)
		}
	}
}

// products is how many products the search for the codes of a layer adds up.
func (c *calibration) products(layer int, passes func(*quantize.Weight) float64) float64 {
	w := c.layers[layer].Weight
	return float64(w.K*w.Elements()) * passes(w)
}
