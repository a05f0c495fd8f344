package calibrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/run/observe"
	"onnxquant/internal/run/samples"
	"onnxquant/onnxq"
)

// Data are the samples of a model, and what runs it on them. The samples stay in their files.
type Data struct {
	path string
	opts Options

	engine   *observe.Engine
	samples  *samples.Samples
	making   observe.Making           // what it takes to make them
	warnings func() ([]string, error) // passes over the samples once
}

var _ onnxq.Calibration = (*Data)(nil)

// New returns the data that opts name for the model at path. Open must be called before they are used.
func New(path string, opts Options) *Data { return &Data{path: path, opts: opts} }

// Open finds the samples, or makes them, and what runs the model.
func (d *Data) Open(ctx context.Context) error {
	if d.engine != nil {
		return nil // opened already
	}
	r, err := open(ctx, d.path, d.opts)
	if err != nil {
		return err
	}
	d.engine, d.samples, d.warnings = r.engine, r.data, sync.OnceValues(r.data.Warnings)
	return r.model.Close()
}

// Suppose is Open in less time, for an estimate alone: random ids stand for the samples that the model would make.
func (d *Data) Suppose(ctx context.Context) error {
	if !slices.Equal(d.opts.Data, []string{Self}) {
		return d.Open(ctx)
	}
	r, err := openSupposed(ctx, d.path, d.opts, true)
	if err != nil {
		return err
	}
	d.engine, d.samples, d.making, d.warnings = r.engine, r.data, r.making, sync.OnceValues(r.data.Warnings)
	return r.model.Close()
}

// Check returns errors of Open that can be known without running the model: a model that generates its
// own samples must be a language model.
func (d *Data) Check(ctx context.Context) error {
	if !slices.Equal(d.opts.Data, []string{Self}) {
		return New(d.path, d.opts).Open(ctx)
	}
	m, err := modelfile.Open(d.path)
	if err != nil {
		return err
	}
	defer m.Close()
	if _, err := graph.New(m); err != nil { // it checks the structure
		return fmt.Errorf("%s: %w", d.path, err)
	}
	_, err = samples.NewLanguage(m)
	return err
}

// Engine and Samples return values of internal types: only packages of this module can use
// them.
func (d *Data) Engine() *observe.Engine   { return d.engine }
func (d *Data) Samples() *samples.Samples { return d.samples }

// Lacked returns which part of ONNX Runtime was not found, if the model therefore runs in pure Go
// without being asked to; else nil. Open must have been called.
func (d *Data) Lacked() error { return d.engine.Lacked() }

// Len is the number of samples. Open must have been called.
func (d *Data) Len() int { return d.samples.Len() }

// Warnings lists problems of the samples that make calibration misleading, one sentence each: values
// that hardly vary, arrays used for inputs with other names. The first call reads all samples. Open
// must have been called.
func (d *Data) Warnings() ([]string, error) { return d.warnings() }

// Key is a hash of the samples, and of whether the model runs in pure Go.
func (d *Data) Key(ctx context.Context) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, d.engine.IsGo())
	for inputs, err := range d.samples.All() {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return "", err
		}
		for _, t := range inputs {
			fmt.Fprintf(h, "%q %v %v\n", t.Name, t.DType, t.Dims)
			h.Write(t.Data)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
