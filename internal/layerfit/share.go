package layerfit

import (
	"context"
	"fmt"
	"os"
	"slices"

	"onnxquant/spec"
)

// ShareFound counts the inputs of layers in a share. Layers with the same input count once.
type ShareFound struct {
	Found  int // whose codes are new
	Before int // whose codes were there
}

// ErrShares is the error about an algorithm that cannot find the codes of a share of the layers.
func ErrShares(a spec.Algorithm) error {
	why := "its factors depend on all layers"
	if a == spec.Best {
		why = "it gives each layer the inputs that the codes of the layers before it make"
	}
	return fmt.Errorf("algorithm %s cannot find the codes of a share of the layers: %s; take gptq", a, why)
}

// FindShare finds the codes of a share of the layers from the float model's activations. It puts them into the folder
// Options.Shared, as soon as those of layers with the same input are found. Codes that are there are not looked for
// again. When all shares are found, Run takes the codes from there. The codes are the same as without shares.
func FindShare(ctx context.Context, layers []Layer, a Activations, o Options, of spec.Share) (done ShareFound, err error) {
	if o.Algorithm != spec.GPTQ {
		return done, ErrShares(o.Algorithm)
	}
	if err := os.MkdirAll(o.Shared, 0o755); err != nil {
		return done, err
	}
	s, _, err := openStore(o.State, o.Key, false)
	if err != nil {
		return done, err
	}
	defer s.close(false)
	c := newCalibration(layers, a, o)
	c.Result = newResult(len(layers), s)
	to := shared{o.Shared, o.Key}
	left := slices.DeleteFunc(c.shareOf(c.allInputs(), of), func(in *inputs) bool {
		there := to.has(in)
		if there {
			done.Before++
		}
		return there
	})
	if len(left) == 0 {
		return done, nil
	}
	groups := c.grouped(left)
	c.frontier = c.newFrontier(groups)
	c.frontier.remove() // left by a process that died
	sample := c.work(groups, c.passes)
	for i, group := range groups {
		err := c.group(ctx, i, group, sample[i], func(f *fit) error {
			done.Found++
			return to.put(c, f)
		})
		if err != nil {
			return done, err
		}
		c.frontier.forget(i)
	}
	c.pace.end()
	return done, nil
}

// shareOf returns the inputs of a share. Shares follow each other in the model, and take about the same time.
func (c *calibration) shareOf(all []*inputs, of spec.Share) (mine []*inputs) {
	work := func(in *inputs) (sum float64) {
		for _, l := range in.layers {
			sum += c.products(l, c.passes)
		}
		k := float64(c.layers[in.layers[0]].Weight.K)
		return sum + k*k*k*float64(in.parts)/6
	}
	var whole, before float64
	for _, in := range all {
		whole += work(in)
	}
	for _, in := range all {
		w := work(in)
		if int((before+w/2)/whole*float64(of.N)) == of.I {
			mine = append(mine, in)
		}
		before += w
	}
	return mine
}

// takeGroup takes the codes of a group from a folder.
func (c *calibration) takeGroup(ctx context.Context, from shared, group []*inputs) error {
	for _, in := range group {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := from.take(c, in); err != nil {
			return err
		}
	}
	return nil
}
