package calibrate

import (
	"context"
	"fmt"
	"slices"

	"onnxquant/internal/kvcache"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/run/execute"
	"onnxquant/spec"
)

// ErrNoCache is wrapped by the error of CacheScales about a model without a key-value cache.
var ErrNoCache = kvcache.ErrNone

// CacheScales runs the model on the data, and returns scales of its key-value caches, for Options.CacheScales of a
// conversion. A scale is the largest absolute value over 127.
func (d *Data) CacheScales(ctx context.Context, by spec.KVCache) (map[string][]float32, error) {
	m, err := modelfile.Open(d.path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	caches, err := kvcache.Find(m.Proto)
	if err != nil {
		return nil, err
	}
	observers := map[string]*kvcache.Observer{}
	var outputs []string
	for _, c := range caches {
		if !slices.Contains(outputs, c.Output) {
			outputs = append(outputs, c.Output)
		}
		observers[c.Output] = kvcache.NewObserver(c)
	}
	if err := d.Open(ctx); err != nil {
		return nil, err
	}
	err = d.engine.Plain().Values(ctx, d.path, d.samples, outputs, (&run{opts: d.opts}).counting("finding scales of caches", 0, len(outputs), len(outputs)), func(v *execute.Tensor) error {
		if !v.IsFloat() {
			return fmt.Errorf("output %s is %v, not float", msg.Quote(v.Name), v.DType)
		}
		return observers[v.Name].Observe(v.Dims, v.Float32s())
	})
	if err != nil {
		return nil, err
	}
	scales := map[string][]float32{}
	for _, c := range caches {
		if scales[c.Input], err = observers[c.Output].Scales(by); err != nil {
			return nil, err
		}
	}
	return scales, nil
}
