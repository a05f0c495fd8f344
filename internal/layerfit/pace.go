package layerfit

import (
	"time"

	"onnxquant/internal/quantize"
)

// pace tells how far a calibration is, in time: what it took so far, of that and what the rest will take
// if it goes on like that. Runs of models and the search for codes have paces of their own: which of
// them takes longer depends on the model.
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

// left is the time for what is not done.
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

// did adds the time since the last call to a kind of work. Nothing is told before a model ran: until then
// the time that this takes is not known.
func (p *pace) did(e *effort, units float64) {
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

// work adds up all the work of the groups. passes is how often a Hessian is multiplied by a weight.
// sample has, for each group, what a run on one sample counts. A run ends behind the layers of its group;
// half of its time counts as independent of where that is.
func (c *calibration) work(groups [][]*inputs, passes func(*quantize.Weight) float64) (sample []float64) {
	var all, behind float64
	for _, l := range c.layers {
		all += float64(l.Weight.Elements())
	}
	models := 1.0
	if c.Best {
		models = 2
	}
	for _, group := range groups {
		for _, in := range group {
			for _, i := range in.layers {
				behind += float64(c.layers[i].Weight.Elements())
				c.pace.fitting.all += c.products(i, passes)
			}
		}
		sample = append(sample, models*(1+behind/all)/2)
		c.pace.running.all += sample[len(sample)-1] * float64(c.activations.Len())
	}
	c.pace.fitting.each = time.Duration(float64(time.Second) / perSecond / float64(c.workers))
	return sample
}

// skip takes away what is not done for a group: its codes are known.
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
