package tune

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"time"

	"onnxquant/onnxq/bench"
)

// How long the time of a candidate is measured.
const (
	timing     = 3 * time.Second
	confirming = 15 * time.Second // of one that may be chosen for its time, unless it is clear before
)

// measure measures a model beside the float model, until it is clear which is faster, for at most a time.
func (s *search) measure(ctx context.Context, path string, limit time.Duration) (*Time, error) {
	c, err := bench.Compare(ctx, s.in, path, 1, bench.Options{ORTLibrary: s.opts.Library, Threads: s.opts.Threads, Inputs: s.opts.Data, Duration: limit})
	if err != nil {
		return nil, err
	}
	return &Time{P50: c.P50, Ratio: c.Ratio, Error: c.Error}, nil
}

// machine says where times are measured, and how.
func (s *search) machine() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s %s %d %d %s", host, runtime.GOARCH, runtime.NumCPU(), s.opts.Threads, s.opts.Library)
}

// isLess reports whether a ratio of times is clearly less than another one: by three standard errors and a hundredth, for memory
// and caches change times from process to process.
func isLess(ratio, than, standardError float64) bool {
	const sigmas, least = 3, 0.01
	return than-ratio > max(sigmas*standardError, least*than)
}

// faster reports whether a trial is clearly faster than another one.
func faster(t, than *Trial) bool {
	return isLess(t.Time.Ratio, than.Time.Ratio, math.Hypot(t.Time.Error, than.Time.Error))
}

// slower notes that a trial is not faster than the float model.
func (t *Trial) slower() {
	t.Holds, t.slow, t.Why = false, true, fmt.Sprintf("%v times the time of IN, which is not clearly faster", t.Time)
}

// String is the ratio and its uncertainty.
func (t *Time) String() string { return fmt.Sprintf("%.2f ± %.2f", t.Ratio, t.Error) }

// confirm measures the time of a trial again, for longer: the least of many measured times is too short by chance.
func (s *search) confirm(ctx context.Context, t *Trial) error {
	path, err := s.made(ctx, t)
	if err != nil {
		return err
	}
	s.progress("timing "+t.Label+" again", 0, 0)
	took, err := s.timeAgain(ctx, path)
	if err != nil {
		t.Holds, t.Why = false, "its time could not be measured again: "+err.Error()
		return nil
	}
	t.Time = took
	if err := s.journal.add(*t); err != nil {
		return err
	}
	if t.Why = s.goal.beyond(t); t.Why != "" {
		t.Holds = false
	} else if !isLess(t.Time.Ratio, 1, t.Time.Error) {
		t.slower()
	}
	return nil
}

// timeAgain measures a time in several pairs of processes, for memory and caches change it from process to process. The error has what
// the pairs differ by.
func (s *search) timeAgain(ctx context.Context, path string) (*Time, error) {
	const pairs = 5
	var ratios, errors, times []float64
	for range pairs {
		took, err := s.timer(ctx, path, confirming/pairs)
		if err != nil {
			return nil, err
		}
		ratios, errors, times = append(ratios, took.Ratio), append(errors, took.Error), append(times, took.P50)
	}
	center, apart := mean(ratios), 0.0
	for _, r := range ratios {
		apart += (r - center) * (r - center) / (pairs - 1)
	}
	return &Time{P50: mean(times), Ratio: center, Error: math.Sqrt(max(apart, mean(errors)*mean(errors)) / pairs), Confirmed: true}, nil
}
