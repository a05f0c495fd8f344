package calibrate

import (
	"context"
	"runtime"
	"time"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/observe"
	"onnxquant/onnxq"
)

// Measure runs the model at path on the first samples. It returns what opening and a run took, and the values of a run.
func (d *Data) Measure(ctx context.Context, path string, values []string) (m onnxq.Measured, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	session, err := d.engine.Beside(1).Open(ctx, path, values...)
	if err != nil {
		return m, err
	}
	defer session.Close()
	m.Open = time.Since(start)
	run := 0
	for inputs, err := range d.samples.All() {
		if err != nil {
			return m, err
		}
		start = time.Now()
		outputs, err := session.Run(inputs, values...)
		if err != nil {
			return m, err
		}
		m.Run, m.Values = time.Since(start), m.Values[:0]
		for _, name := range values {
			m.Values = append(m.Values, valueOf(find(outputs, name)))
		}
		if m.Run, m.Memory, m.Apart, err = observe.Again(session, inputs, m.Run); err != nil || m.Apart {
			return m, err
		}
		if run++; run == 2 || m.Run > short {
			break
		}
	}
	runtime.ReadMemStats(&after)
	m.Memory = int64(after.Sys - before.Sys)
	return m, nil
}

// short is the time of a run of the Go engine after which another one tells more: the first prepares.
const short = time.Second

// valueOf takes the numbers of a tensor.
func valueOf(t *execute.Tensor) (v onnxq.Value) {
	if t == nil {
		return v
	}
	if v.Dims = t.Dims; t.IsFloat() {
		v.Data = t.TakeFloat32s()
	}
	return v
}
