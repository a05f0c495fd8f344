package tune

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// nothingLost judges every model as good as the float model.
type nothingLost struct{}

func (nothingLost) Judge(context.Context, string, bool) (Quality, error) {
	score := 1.0
	return Quality{Score: &score}, nil
}

// measured is a candidate with a size, a time that a trial measures, and one that is measured when it is confirmed.
type measured struct {
	label        string
	bytes        int64
	first, again Time
}

// fastest runs a search for the fastest of candidates, of which each was measured once.
func fastest(t *testing.T, ctx context.Context, list []measured) (*search, *Trial, error) {
	drop, folder := Drop{Amount: 0.01}, t.TempDir()
	s := &search{out: "out.onnx", opts: &Options{Judge: nothingLost{}}, goal: &Goal{Objective: Fastest, MaxDrop: &drop}, size: 10000, judge: nothingLost{}, folder: folder,
		result: &Result{}, journal: &journal{trials: map[string]Trial{}, path: filepath.Join(folder, "j")}, trust: map[string]trust{}, took: map[string][]float64{},
		belief: newBelief(0.01, 0.25)}
	s.result.Float, _ = s.judge.Judge(t.Context(), "", false)
	of := map[string]measured{}
	for _, m := range list {
		c := &candidate{kind: Weights, class: m.label, label: m.label, flags: []string{m.label}, bytes: m.bytes, cost: 1, spread: 0.6}
		path := s.place(c)
		of[path] = m
		took := m.first
		trial := &Trial{Label: m.label, Flags: c.flags, Bytes: m.bytes, Time: &took, candidate: c}
		trial.Quality = s.result.Float
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, nil, 0o666), s.settle(t.Context(), trial)); err != nil {
			t.Fatal(err)
		}
	}
	s.timer = func(_ context.Context, path string, _ time.Duration) (*Time, error) {
		took := of[path].again
		return &took, nil
	}
	winner, err := s.run(ctx)
	return s, winner, err
}

// A model counts as faster only if that is clear when its time is measured again. Of models that are about as fast, the
// smallest is chosen.
func TestFastest(t *testing.T) {
	at := func(ratio, off float64) Time { return Time{Ratio: ratio, Error: off} }
	for name, test := range map[string]struct {
		list []measured
		want string // label of the winner; "": none
		why  string
	}{
		"the least of many is short by chance": {[]measured{{"a", 9000, at(0.95, 0.02), at(1.01, 0.005)}, {"b", 8000, at(0.97, 0.02), at(0.994, 0.005)}}, "",
			"nothing that keeps the goal is faster than IN, beyond the uncertainty of the times; the nearest has 0.99 ± 0.00 times the time of IN"},
		"a clear gain":         {[]measured{{"a", 9000, at(0.7, 0.02), at(0.72, 0.005)}, {"b", 8000, at(0.97, 0.02), at(0.99, 0.005)}}, "a", ""},
		"about as fast":        {[]measured{{"a", 9000, at(0.70, 0.01), at(0.70, 0.005)}, {"b", 8000, at(0.71, 0.01), at(0.71, 0.005)}, {"c", 7000, at(0.8, 0.01), at(0.8, 0.005)}}, "b", ""},
		"slower when measured": {[]measured{{"a", 9000, at(0.8, 0.01), at(0.8, 0.005)}, {"b", 8000, at(0.7, 0.02), at(0.9, 0.005)}}, "a", ""},
		"small but certain":    {[]measured{{"a", 9000, at(0.97, 0.02), at(0.97, 0.005)}}, "a", ""},
		"too small a gain":     {[]measured{{"a", 9000, at(0.993, 0), at(0.993, 0)}}, "", "nothing that keeps the goal is faster"},
		"all are slower":       {[]measured{{"a", 9000, at(1.4, 0.01), at(1.4, 0.005)}}, "", "the nearest has 1.40 ± 0.01 times the time of IN, which is not clearly faster"},
	} {
		t.Run(name, func(t *testing.T) {
			s, winner, err := fastest(t, t.Context(), test.list)
			switch {
			case test.want == "":
				if winner != nil || !errors.Is(err, ErrGoal) || !strings.Contains(s.result.Reason, test.why) || s.result.Verdict != Missed {
					t.Errorf("%v, %+v, %s: %q", err, winner, s.result.Verdict, s.result.Reason)
				}
			case err != nil || winner == nil || winner.Label != test.want:
				t.Errorf("%v, %+v, want %s", err, winner, test.want)
			case !slices.ContainsFunc(test.list, func(m measured) bool { return m.label == test.want && m.again.Ratio == winner.Time.Ratio }):
				t.Errorf("the winner has the time %v", winner.Time)
			}
		})
	}
}

// A search that is interrupted chooses by times that were measured again, too, and one that goes on from it measures none of them once more.
func TestFastestInterrupted(t *testing.T) {
	at := func(ratio, off float64, confirmed bool) Time {
		return Time{Ratio: ratio, Error: off, Confirmed: confirmed}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for name, test := range map[string]struct {
		list []measured
		want string
	}{
		"nothing was measured again":      {[]measured{{"a", 9000, at(0.7, 0.02, false), at(1.01, 0.005, false)}, {"b", 8000, at(0.8, 0.02, false), at(0.82, 0.005, false)}}, "b"},
		"one was: the other has no claim": {[]measured{{"a", 9000, at(0.5, 0.02, false), at(0.5, 0.005, false)}, {"b", 8000, at(0.8, 0.005, true), at(2, 0, false)}}, "b"},
		"both were":                       {[]measured{{"a", 9000, at(0.7, 0.005, true), at(2, 0, false)}, {"b", 8000, at(0.8, 0.005, true), at(2, 0, false)}}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			s, winner, err := fastest(t, ctx, test.list)
			if err != nil || winner == nil || winner.Label != test.want || !winner.Time.Confirmed {
				t.Fatalf("%v, %+v, want %s", err, winner, test.want)
			}
			if kept, ok := s.journal.kept([]string{test.want}); !ok || *kept.Time != *winner.Time {
				t.Errorf("kept: %+v", kept.Time)
			}
		})
	}
}

// What processes differ by counts as uncertainty, although each says that it is certain.
func TestTimeAgain(t *testing.T) {
	list := []float64{0.8, 1.0, 0.9, 1.1, 0.95}
	n := 0
	s := &search{timer: func(context.Context, string, time.Duration) (*Time, error) {
		n++
		return &Time{P50: 2, Ratio: list[n-1], Error: 1e-4}, nil
	}}
	took, err := s.timeAgain(t.Context(), "")
	if err != nil || math.Abs(took.Ratio-0.95) > 1e-9 || took.Error < 0.045 || took.P50 != 2 || !took.Confirmed {
		t.Errorf("%v, %+v", err, took)
	}
}

// Times of another machine do not count.
func TestJournalMachine(t *testing.T) {
	folder := t.TempDir()
	j, err := openJournal(folder, "here", "key")
	if err != nil {
		t.Fatal(err)
	}
	if err := j.add(Trial{Flags: []string{"--bits", "4"}, Bytes: 7, Time: &Time{Ratio: 0.5, Confirmed: true}}); err != nil {
		t.Fatal(err)
	}
	for _, machine := range []string{"here", "there"} {
		j, err := openJournal(folder, machine, "key")
		if err != nil {
			t.Fatal(err)
		}
		got, ok := j.kept([]string{"--bits", "4"})
		if !ok || got.Bytes != 7 || (got.Time != nil) != (machine == "here") {
			t.Errorf("%s: %+v, %v", machine, got, ok)
		}
	}
}
