package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"onnxquant/calib"
	"onnxquant/internal/npy"
)

// The precision of histograms, and limits on the number of channels.
const (
	tensorPrecision  = 12
	channelPrecision = 7 // if there are more than manyChannels channels
	manyChannels     = 16
	maxChannels      = 1 << 16
)

// calibration observes arrays.
type calibration struct {
	ctx     context.Context
	flags   calibrateFlags
	method  calib.Method
	scheme  calib.Scheme
	tensors []*observed
}

// observed is a tensor with its observers.
type observed struct {
	name            string
	batches, values int64
	channels        []calib.Observer // one per channel; one in all without --axis
}

// ofArrays finds the ranges of the arrays in files.
func (k *calibration) ofArrays(c *console, paths []string) error {
	if len(paths) == 0 {
		return usagef("no file given")
	}
	for _, path := range paths {
		if strings.EqualFold(filepath.Ext(path), ".onnx") {
			return usagef("%s is a model: give --data DATA, what to run it on", printable(path))
		}
	}
	for _, path := range paths {
		if err := npy.Each(path, k.batch); err != nil {
			return err
		}
	}
	if k.flags.quiet && !k.flags.json {
		return nil
	}
	return k.print(c)
}

// batch observes an array.
func (k *calibration) batch(a *npy.Array) error {
	channels, step := int64(1), max(a.Len(), 1)
	if k.flags.perAxis {
		var err error
		if channels, step, err = a.Channels(k.flags.axis); err != nil {
			return err
		}
	}
	t, err := k.tensor(a.Name, channels)
	if err != nil {
		return err
	}
	buf := make([]float32, 1<<14)
	for at := int64(0); ; {
		n, err := a.ReadFloats(buf)
		if err == io.EOF {
			break
		}
		if err == nil {
			err = context.Cause(k.ctx)
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
func (k *calibration) tensor(name string, channels int64) (*observed, error) {
	if k.flags.name != "" {
		name = k.flags.name
	}
	for _, t := range k.tensors {
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
		o, err := k.method.Observer(k.scheme, precision)
		if err != nil {
			return nil, err
		}
		t.channels = append(t.channels, o)
	}
	k.tensors = append(k.tensors, t)
	return t, nil
}

// The JSON that calibrate prints. A tensor has one range or, with --axis, one per channel.
// The range of a channel without values is null.
type (
	calibrationJSON struct {
		Range     string        `json:"range"`
		Bits      int           `json:"bits"`
		Symmetric bool          `json:"symmetric"`
		Axis      *int          `json:"axis,omitempty"`
		Tensors   []*tensorJSON `json:"tensors"`
	}
	tensorJSON struct {
		Name    string `json:"name"`
		Batches int64  `json:"batches"`
		Values  int64  `json:"values"`
		*calib.Range
		*calib.Params
		Channels []*rangeJSON `json:"channels,omitempty"`
	}
	rangeJSON struct {
		calib.Range
		calib.Params
	}
)

func (k *calibration) print(c *console) error {
	out := calibrationJSON{Range: k.method.String(), Bits: k.scheme.Bits, Symmetric: k.scheme.Symmetric, Tensors: []*tensorJSON{}}
	if k.flags.perAxis {
		out.Axis = &k.flags.axis
	}
	for _, t := range k.tensors {
		j := &tensorJSON{Name: t.name, Batches: t.batches, Values: t.values}
		for _, o := range t.channels {
			r, err := o.Range()
			if err != nil && !errors.Is(err, calib.ErrEmpty) {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			var found *rangeJSON
			if err == nil {
				found = &rangeJSON{r, k.scheme.Params(r)}
			}
			if k.flags.perAxis {
				j.Channels = append(j.Channels, found)
			} else if found != nil {
				j.Range, j.Params = &found.Range, &found.Params
			}
		}
		out.Tensors = append(out.Tensors, j)
	}
	return c.json(out)
}
