package tune

import (
	"testing"

	"onnxquant/onnxq"
)

// Misses lower the chances of candidates that are alike, the second one more than the first.
func TestMissesLowerChances(t *testing.T) {
	limit := 0.01
	s := &search{goal: &Goal{Objective: Smallest, MaxKL: &limit}, trust: map[string]trust{}, belief: newBelief(limit, 0.25), outputs: &outputs{}}
	chances := func(class string) float64 {
		c := &candidate{kind: Mixes, class: class, noise: 0.003, spread: 0.6}
		loss, spread := s.estimate(c)
		return s.belief.chance(loss, spread) * s.trust[c.kin()].factor()
	}
	first, other := chances("mix mse"), chances("mix gptq")
	for i := range 2 {
		c := &candidate{kind: Mixes, class: "mix rtn", noise: 0.008, spread: 0.6}
		s.learn(&Trial{Kind: Mixes, Chance: 0.8, Quality: Quality{Loss: &onnxq.OutputLoss{Damage: 0.02}}, candidate: c}, false)
		after := chances("mix mse")
		if most := []float64{0.9, 0.6}[i]; after > most*first {
			t.Errorf("after %d misses the chance is %.2f, at first %.2f", i+1, after, first)
		}
	}
	if after := chances("mix gptq"); after < 0.8*other {
		t.Errorf("codes by data have a chance of %.2f, before %.2f", after, other)
	}
}

// Few samples may show no loss: that does not make others like it harmless.
func TestNoLossIsNoProof(t *testing.T) {
	limit := 0.01
	s := &search{goal: &Goal{MaxKL: &limit}, trust: map[string]trust{}, belief: newBelief(limit, 0.25), outputs: &outputs{}}
	c := &candidate{kind: Mixes, class: "mix rtn", noise: 0.01, spread: 0.6}
	s.learn(&Trial{Kind: Mixes, Chance: 0.5, Quality: Quality{Loss: &onnxq.OutputLoss{}}, candidate: c}, true)
	if loss, _ := s.estimate(c); loss < 0.001 {
		t.Errorf("estimate %g", loss)
	}
}

func TestRowsThatMayChange(t *testing.T) {
	for _, test := range []struct {
		drop        Drop
		rows, wants int
		notes       int
	}{{Drop{0.01, true}, 8, 0, 1}, {Drop{0.01, true}, 300, 3, 0}, {Drop{0, true}, 8, 0, 0}} {
		s := &search{opts: &Options{}, goal: &Goal{MaxDrop: &test.drop}, result: &Result{Samples: Samples{Rows: test.rows, FinalRows: test.rows}}}
		s.countRows()
		if got := s.result.Samples; got.MayChange != test.wants || got.FinalChange != test.wants || len(s.result.Notes) != test.notes {
			t.Errorf("%v of %d rows: %+v, %q", test.drop, test.rows, got, s.result.Notes)
		}
	}
	accuracy := 90.0 // half a percent of 200 labels is one, 1 % of the accuracy is 0.9 %
	for drop, want := range map[Drop]int{{0.5, false}: 1, {0.01, true}: 1, {2, false}: 4} {
		labels := share{labels: [][]int64{make([]int64, 200)}}
		s := &search{opts: &Options{Labels: "y"}, goal: &Goal{MaxDrop: &drop}, result: &Result{Float: Quality{Score: &accuracy}}, outputs: &outputs{choice: labels, final: labels}}
		s.countRows()
		if got := s.result.Samples.MayChange; got != want {
			t.Errorf("%v: %d rows, want %d", drop, got, want)
		}
	}
}
