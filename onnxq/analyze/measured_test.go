package analyze_test

import (
	"context"
	"math"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/spec"
)

// ten is a damage of 10 for each weight; it counts the formats.
type ten struct{ formats int }

func (d *ten) Expect(int) {}

func (d *ten) Of(_ context.Context, _ *onnxq.Model, _ onnxq.Options, weights []string) (all []float64, err error) {
	d.formats++
	for range weights {
		all = append(all, 10)
	}
	return all, nil
}

func (d *ten) Together(context.Context, *onnxq.Model, onnxq.Options) (float64, error) { return 0, nil }

// What is not measured follows from the weight's measured choice with the nearest error.
func TestMeasured(t *testing.T) {
	in, _, remove := modeltest.Example("mlp")
	defer remove()
	m, err := onnxq.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	four, eight := spec.Candidate{Format: spec.Int4, Block: 32}, spec.Candidate{Format: spec.Int8, Block: 32}
	damage := &ten{}
	mixes, err := analyze.MeasureMixes(t.Context(), m, analyze.Options{Candidates: []spec.Candidate{four, eight}, Damage: damage, Measured: []spec.Candidate{four}})
	if err != nil {
		t.Fatal(err)
	}
	if damage.formats != 1 {
		t.Errorf("%d formats were measured", damage.formats)
	}
	for _, w := range mixes.Weights() {
		errors := map[spec.Candidate]float64{}
		for _, c := range w.Choices {
			errors[c.Candidate] = c.Error
		}
		for _, c := range w.Choices {
			want := 10 * math.Pow(c.Error/errors[four], 2)
			if got := *c.Damage; c.Candidate.Format != spec.Float && math.Abs(got-want) > 1e-9*want || c.Estimated != (c.Candidate == eight) {
				t.Errorf("%s as %v: damage %g, want %g; estimated %v", w.Name, c.Candidate, got, want, c.Estimated)
			}
		}
	}
}
