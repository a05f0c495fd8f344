package capi

import (
	"errors"
	"runtime"
	"runtime/debug"
	"time"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/ort/wire"
	"onnxquant/internal/work"
)

// Bind keeps copies of inputs for Time, in place of earlier ones.
func (s *Session) Bind(inputs []*execute.Tensor) error {
	s.unbind()
	b, err := s.bind(inputs, s.outputs)
	if err != nil {
		s.release(b)
		return err
	}
	s.bound = b
	return nil
}

func (s *Session) unbind() {
	if s.bound != nil {
		s.release(s.bound)
		s.bound = nil
	}
}

// Time runs the model on the inputs of Bind, and measures each run. The time of a run includes that
// of its outputs' memory, which ONNX Runtime allocates, but not that of releasing them.
func (s *Session) Time(r *wire.Time) (wire.Timing, error) {
	if s.bound == nil {
		return wire.Timing{}, errors.New("no inputs are bound")
	}
	// The collector and the scheduler of Go shall not disturb the runs.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := s.warm(r.Warm); err != nil {
		return wire.Timing{}, err
	}
	most := max(min(r.Most, wire.MostRuns), 1)
	t := wire.Timing{Runs: make([]time.Duration, 0, most)}
	before, start := work.Spent(), time.Now()
	for len(t.Runs) < most && (len(t.Runs) == 0 || time.Since(start) < r.For) {
		d, err := s.timed()
		if err != nil {
			return wire.Timing{}, err
		}
		t.Runs = append(t.Runs, d)
	}
	t.CPU = work.Spent() - before
	return t, nil
}

// warm runs the model for some time. Meanwhile, the threads of other sessions cease to spin: they do so
// for a while after each run. A model whose runs take longer than that waits instead.
func (s *Session) warm(d time.Duration) error {
	if s.last > d {
		time.Sleep(d)
		return nil
	}
	for start := time.Now(); s.last == 0 || time.Since(start) < d; {
		if _, err := s.timed(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) timed() (time.Duration, error) {
	start := time.Now()
	err := s.run(s.bound)
	s.last = max(time.Since(start), 1)
	s.releaseAll(s.bound.outputs)
	return s.last, err
}

// EndProfile writes the profile of all runs, and returns the path of its file.
func (s *Session) EndProfile() (string, error) {
	f := &s.l.f
	var path *byte
	if err := f.check(f.SessionEndProfiling(s.session, s.l.allocator, &path)); err != nil {
		return "", err
	}
	text := goString(path)
	return text, f.check(f.AllocatorFree(s.l.allocator, path))
}
