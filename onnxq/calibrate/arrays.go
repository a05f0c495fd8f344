package calibrate

import (
	"context"
	"errors"
	"fmt"
	"io"

	"onnxquant/calib"
	"onnxquant/internal/run/npy"
)

// ArrayOptions say how the ranges of arrays are found.
type ArrayOptions struct {
	Method calib.Method
	Scheme calib.Scheme
	Name   string // all arrays are batches of one tensor of this name; "": each name is one
	Axis   *int   // each index of this axis, from the end if negative, has a range; nil: one range a tensor
}

// Check returns an error if the method does not fit the scheme.
func (o ArrayOptions) Check() error {
	_, err := o.Method.Observer(o.Scheme, tensorPrecision)
	return err
}

// Arrays finds the ranges of the arrays in .npy and .npz files. Arrays of one name are batches of one tensor;
// that in an .npy file has the name of the file. Files are read as streams.
func Arrays(ctx context.Context, paths []string, opts ArrayOptions) (*ArrayRanges, error) {
	a := &arrays{ctx: ctx, opts: opts}
	for _, path := range paths {
		if err := npy.Each(path, a.batch); err != nil {
			return nil, err
		}
	}
	return a.ranges()
}

// The precision of histograms, and limits on the number of channels.
const (
	tensorPrecision  = 12
	channelPrecision = 7 // if there are more than manyChannels channels
	manyChannels     = 16
	maxChannels      = 1 << 16
)

// arrays observes arrays.
type arrays struct {
	ctx     context.Context
	opts    ArrayOptions
	tensors []*observed
}

// observed is a tensor with its observers.
type observed struct {
	name            string
	batches, values int64
	channels        []calib.Observer // one per channel; one in all without an axis
}

// batch observes an array.
func (a *arrays) batch(x *npy.Array) error {
	channels, step := int64(1), max(x.Len(), 1)
	if a.opts.Axis != nil {
		var err error
		if channels, step, err = x.Channels(*a.opts.Axis); err != nil {
			return err
		}
	}
	t, err := a.tensor(x.Name, channels)
	if err != nil {
		return err
	}
	buf := make([]float32, 1<<14)
	for at := int64(0); ; {
		n, err := x.ReadFloats(buf)
		if err == io.EOF {
			break
		}
		if err == nil {
			err = context.Cause(a.ctx)
		}
		if err != nil {
			return err
		}
		if err := t.observe(buf[:n], at, step); err != nil {
			return err
		}
		at += int64(n)
	}
	t.batches++
	for _, o := range t.channels {
		o.EndBatch()
	}
	return nil
}

// observe passes values to the observers of their channels. The first value is element at
// of the batch.
func (t *observed) observe(x []float32, at, step int64) error {
	for len(x) > 0 {
		n := min(step-at%step, int64(len(x)))
		if err := t.channels[at/step%int64(len(t.channels))].Observe(x[:n]); err != nil {
			return err
		}
		x, at, t.values = x[n:], at+n, t.values+n
	}
	return nil
}

// tensor finds or adds a tensor.
func (a *arrays) tensor(name string, channels int64) (*observed, error) {
	if a.opts.Name != "" {
		name = a.opts.Name
	}
	for _, t := range a.tensors {
		if t.name != name {
			continue
		}
		if int64(len(t.channels)) != channels {
			return nil, fmt.Errorf("it has %d channels, but an earlier batch of %s has %d", channels, name, len(t.channels))
		}
		return t, nil
	}
	if channels > maxChannels {
		return nil, fmt.Errorf("it has %d channels, at most %d are supported", channels, maxChannels)
	}
	precision := tensorPrecision
	if channels > manyChannels {
		precision = channelPrecision
	}
	t := &observed{name: name}
	for range channels {
		o, err := a.opts.Method.Observer(a.opts.Scheme, precision)
		if err != nil {
			return nil, err
		}
		t.channels = append(t.channels, o)
	}
	a.tensors = append(a.tensors, t)
	return t, nil
}

// ArrayRanges are the ranges of arrays.
type ArrayRanges struct {
	Range     string        `json:"range"`
	Bits      int           `json:"bits"`
	Symmetric bool          `json:"symmetric"`
	Axis      *int          `json:"axis,omitempty"`
	Tensors   []*ArrayRange `json:"tensors"`
}

// ArrayRange is the range of a tensor or, with an axis, the range of each channel. The range of a
// channel without values is null.
type ArrayRange struct {
	Name    string `json:"name"`
	Batches int64  `json:"batches"`
	Values  int64  `json:"values"`
	*calib.Range
	*calib.Params
	Channels []*ChannelRange `json:"channels,omitempty"`
}

// ChannelRange is a range, with the scale and the zero point of its codes.
type ChannelRange struct {
	calib.Range
	calib.Params
}

// ranges returns the ranges that the observers found.
func (a *arrays) ranges() (*ArrayRanges, error) {
	all := &ArrayRanges{Range: a.opts.Method.String(), Bits: a.opts.Scheme.Bits, Symmetric: a.opts.Scheme.Symmetric, Axis: a.opts.Axis, Tensors: []*ArrayRange{}}
	for _, t := range a.tensors {
		one := &ArrayRange{Name: t.name, Batches: t.batches, Values: t.values}
		for _, o := range t.channels {
			r, err := o.Range()
			if err != nil && !errors.Is(err, calib.ErrEmpty) {
				return nil, fmt.Errorf("%s: %w", t.name, err)
			}
			var found *ChannelRange
			if err == nil {
				found = &ChannelRange{r, a.opts.Scheme.Params(r)}
			}
			if a.opts.Axis != nil {
				one.Channels = append(one.Channels, found)
			} else if found != nil {
				one.Range, one.Params = &found.Range, &found.Params
			}
		}
		all.Tensors = append(all.Tensors, one)
	}
	return all, nil
}
