package observe

import (
	"slices"
	"time"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/ort"
	"onnxquant/internal/run/execute/ort/wire"
)

// CPUTime returns the CPU time in seconds of a run in ONNX Runtime, the mean of the runs in a time, after others that are not
// measured. It is 0 for a session in pure Go.
func CPUTime(session execute.Session, inputs []*execute.Tensor, warm, measured time.Duration) (float64, error) {
	const most = 1000 // runs
	s, ok := session.(*ort.Session)
	if !ok {
		return 0, nil
	}
	if err := s.Bind(slices.DeleteFunc(slices.Clone(inputs), func(t *execute.Tensor) bool { return t == nil })); err != nil {
		return 0, err
	}
	timing, _, err := s.Time(wire.Time{Warm: warm, For: measured, Most: most})
	if err != nil || len(timing.Runs) == 0 {
		return 0, err
	}
	return timing.CPU.Seconds() / float64(len(timing.Runs)), nil
}
