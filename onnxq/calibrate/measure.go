package calibrate

import (
	"context"
	"runtime"
	"time"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/onnxq"
)

// Measure runs the model at path on the first samples. It returns what opening and a run took, and the shapes of values. It keeps
// no values: those of all layers may take more memory than a calibration.
func (d *Data) Measure(ctx context.Context, path string, values []string) (m onnxq.Measured, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	session, err := d.engine.Beside(1).OpenShapes(ctx, path, values)
	if err != nil {
		return m, err
	}
	defer session.Close()
	m.Open, m.Making, m.Handed, m.Drawn = time.Since(start), d.making.Runs, d.making.Handed, d.making.Drawn
	run := 0
	for inputs, err := range d.samples.All() {
		if err != nil {
			return m, err
		}
		start = time.Now()
		if m.Shapes, err = session.Of(inputs); err != nil {
			return m, err
		}
		if m.Run, m.Memory, m.Apart, err = session.Again(inputs, time.Since(start)); err != nil || m.Apart {
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
	switch v.Dims = t.Dims; {
	case t.IsFloat():
		v.Data = t.TakeFloat32s()
	case t.DType == dtype.Int64 || t.DType == dtype.Int32: // indices of experts
		for _, i := range t.Int64s() {
			v.Data = append(v.Data, float32(i))
		}
	}
	return v
}
