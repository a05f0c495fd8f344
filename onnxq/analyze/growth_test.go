package analyze

import (
	"math/rand/v2"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// The sum of sizes per weight exceeds the exact size of a mix by no more than is allowed for, and is
// no smaller either where weights share no constants.
func TestGrowths(t *testing.T) {
	for name, m := range map[string]*testmodels.Model{
		"mlp": testmodels.MLP(5, 512, 256, 256, 256, 64), "embedding": testmodels.Embedding(5, 300, 96), "names": testmodels.Names(5),
		"if": testmodels.If(5), "conv": testmodels.Conv(5),
	} {
		path, random := modeltest.Write(t, m), rand.New(rand.NewPCG(1, 2))
		for _, opts := range []onnxq.Options{
			{}, {Target: spec.ORT}, {ExternalData: spec.ExternalAlways}, {Style: spec.QDQ},
		} {
			opts.Ops = []string{"all"}
			a, err := newAnalyzer(modeltest.Open(t, path), Options{Options: opts, MaxSize: 1, Candidates: candidates(t, opts.Style)})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range a.Candidates {
				if err := a.try(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			for range 20 {
				sum, pick, shares := a.fixedBytes(), make([]int, len(a.Weights)), false
				few := 1 + random.IntN(4) // of the candidates
				for i, w := range a.Weights {
					pick[i] = random.IntN(min(few, len(w.Choices)))
					if w.Choices[pick[i]].growth >= 0 { // it stays in float
						pick[i] = 0
					}
					sum += float64(w.Bytes) + w.Choices[pick[i]].growth
					shares = shares || w.Choices[pick[i]].Candidate.Format == "q4_k" || opts.Target == spec.ORT // or the shape of a Reshape
				}
				if err := a.applyPick(pick); err != nil {
					t.Fatal(err)
				}
				if over := sum - float64(a.OutBytes); over > float64(a.slack) {
					t.Errorf("%s, %s, %s: %v bytes more than the exact %d, at most %d are allowed for", name, opts.Target, opts.Style, over, a.OutBytes, a.slack)
				}
				if under := float64(a.OutBytes) - sum; under > float64(a.slack) && !shares {
					t.Errorf("%s, %s, %s: %v bytes less than the exact %d, at most %d are usual", name, opts.Target, opts.Style, under, a.OutBytes, a.slack)
				}
			}
		}
	}
}

// candidates are those of a test, in an order that depends on nothing.
func candidates(t *testing.T, style spec.Style) (list []spec.Candidate) {
	texts := []string{"int8:channel", "int4:32:zp", "q4_k", "q4_0", "int4:16:zp:uint8scale"}
	if style == spec.QDQ {
		texts = []string{"int8:channel", "int8:32"}
	}
	for _, text := range texts {
		c, err := spec.ParseCandidate(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	return list
}
