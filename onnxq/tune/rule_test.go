package tune

import (
	"context"
	"slices"
	"testing"

	"onnxquant/onnxq"
)

// recorded is a candidate with its estimate, and what came of it.
type recorded struct {
	class   string
	kind    Kind
	bytes   int64
	noise   float64
	loss    float64 // 0: it fails
	seconds float64
}

// guesses returns the cost and the uncertainty of an estimate of classes.
func guesses() map[string][2]float64 {
	of := map[string][2]float64{"float16": {1, 2}, "dynamic": {1, 1.5}, "static": {20, 1.5}}
	for _, a := range (&planner{calib: []string{"--calib", "data"}}).algorithms(4) {
		of["weights "+string(a.name)], of["mix "+string(a.name)] = [2]float64{a.cost, a.spread}, [2]float64{a.cost, a.spread}
	}
	return of
}

// replay runs a search over records, and returns the classes in the order in which they are tried.
func replay(t *testing.T, float int64, weighed float64, list []recorded) (*search, []string) {
	limit := 0.01
	s := &search{opts: &Options{}, goal: &Goal{Objective: Smallest, MaxKL: &limit}, size: float, result: &Result{}, journal: &journal{trials: map[string]Trial{}, path: t.TempDir() + "/j"},
		trust: map[string]trust{}, took: map[string][]float64{}, belief: newBelief(limit, 0.25), outputs: &outputs{doubt: 0.15}}
	records, elapsed, guess := map[*candidate]recorded{}, weighed, guesses()
	for _, r := range list {
		c := &candidate{kind: r.kind, class: r.class, flags: []string{r.class}, bytes: r.bytes, noise: r.noise, cost: guess[r.class][0], spread: guess[r.class][1], limited: r.class == "static"}
		records[c] = r
		s.untried = append(s.untried, c)
	}
	var order []string
	for len(s.untried) > 0 && s.next() {
		c := s.untried[0]
		s.untried = s.untried[1:]
		r, p := records[c], s.promise(c)
		elapsed += r.seconds
		trial := &Trial{Kind: c.kind, Flags: c.flags, Bytes: r.bytes, Chance: p.chance, Seconds: r.seconds, candidate: c, Kept: true, elapsed: elapsed}
		if trial.Quality.Loss = &(onnxq.OutputLoss{Damage: r.loss, KL: &r.loss}); r.loss == 0 {
			trial.Quality.Loss, trial.Failed = nil, "the limit does not hold"
		}
		if err := s.settle(context.Background(), trial); err != nil {
			t.Fatal(err)
		}
		order = append(order, r.class)
		t.Logf("%-12s %8d bytes, chance %.2f, estimate %.2g, loss %.2g, value %.3f", r.class, r.bytes, p.chance, p.loss, r.loss, p.value)
	}
	return s, order
}

// What a search does after estimates that were right or wrong, by records of a text recognizer with convolutions.
func TestWrongEstimatesDoNotEnd(t *testing.T) {
	const float = 10857958
	half := recorded{"float16", Half, 5492763, 1e-7, 4.6e-5, 2.1}
	static, dynamic := recorded{"static", Static, 2924263, 0.054, 0, 61}, recorded{"dynamic", Dynamic, 2930242, 0.05, 0.085, 0.8}
	for _, test := range []struct {
		name  string
		list  []recorded
		bytes int64  // of the best in the end
		never string // class that must not be tried
		most  int    // trials
	}{
		{"rounding is worse than estimated, data are better", []recorded{half, static, dynamic,
			{"weights rtn", Weights, 3027283, 0.019, 0.14, 1.6}, {"weights rtn", Weights, 2514602, 0.04, 0.176, 1.8}, {"mix rtn", Mixes, 2855000, 0.019, 0.13, 2},
			{"weights gptq", Weights, 2719731, 0.12, 0.0059, 12}, {"weights best", Weights, 2719731, 0.12, 0.0063, 26}, {"weights best", Weights, 2486031, 0.25, 0.011, 26}}, 2719731, "", 9},
		{"float16 loses more than guessed", []recorded{half, {"mix rtn", Mixes, 2600000, 0.009, 0.0095, 2}, {"mix rtn", Mixes, 2900000, 0.006, 0.0065, 2}}, 2600000, "", 3},
		{"a failed conversion and a miss", []recorded{half, static, dynamic, {"mix gptq", Mixes, 2283748, 0.012, 0.0043, 17}}, 2283748, "", 4},
		{"estimates are right", []recorded{half, {"mix rtn", Mixes, 2900000, 0.006, 0.0061, 2}, {"mix rtn", Mixes, 2600000, 0.009, 0.0092, 2}, {"mix rtn", Mixes, 2590000, 0.03, 0.031, 2},
			{"mix gptq", Mixes, 2595000, 0.008, 0.0081, 12}, {"weights best", Weights, 2550000, 0.02, 0.02, 26}}, 2600000, "weights best", 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, order := replay(t, float, 40, test.list)
			if best := s.best(); best == nil || best.Bytes != test.bytes {
				t.Errorf("best %+v, want %d bytes", best, test.bytes)
			}
			if len(order) > test.most || slices.Contains(order, test.never) {
				t.Errorf("tried %q; want at most %d, and no %q", order, test.most, test.never)
			}
			for i := range test.list { // on a busy machine
				test.list[i].seconds *= float64(1 + 7*i%5)
			}
			if _, again := replay(t, float, 400, test.list); !slices.Equal(again, order) {
				t.Errorf("tried %q where conversions take other times, not %q", again, order)
			}
		})
	}
}

// The last trial goes to nothing that cannot win, and is none beyond the number of trials.
func TestSecureKeepsBounds(t *testing.T) {
	limit := 0.01
	for _, test := range []struct {
		name   string
		goal   Goal
		trials int
	}{
		{"the largest size", Goal{MaxSize: 1000}, 0},
		{"the number of trials", Goal{}, DefaultMost},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.goal.Objective, test.goal.MaxKL = Smallest, &limit
			s := &search{opts: &Options{}, goal: &test.goal, size: 10000, result: &Result{}, trust: map[string]trust{}, belief: newBelief(limit, 0.25), outputs: &outputs{doubt: 0.15}}
			s.trials = make([]*Trial, test.trials)
			for i := range s.trials {
				s.trials[i] = &Trial{}
			}
			s.untried = []*candidate{{kind: Weights, class: "weights rtn", bytes: 5000, noise: 1e-6, spread: 0.6, cost: 1}}
			if err := s.secure(t.Context()); err != nil || len(s.untried) != 1 {
				t.Errorf("%d of 1 candidates is left, %v", len(s.untried), err)
			}
		})
	}
}
