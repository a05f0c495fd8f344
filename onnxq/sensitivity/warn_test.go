package sensitivity

import (
	"strings"
	"testing"

	"onnxquant/onnxq"
)

// A default limit that was raised much has a warning if the outputs need that.
func TestWarnOfRaised(t *testing.T) {
	reached := 0.038
	loss := onnxq.OutputLoss{Damage: 0.18, Drop: new(0.0687), KL: new(0.18)}
	for _, c := range []struct {
		name string
		mix  mix
		want []string
	}{
		{"a recognizer", mix{loss: &outcome{loss: loss, weights: onnxq.OutputLoss{Damage: 0.12}, usual: 0.01, limit: 0.19}, reached: &reached},
			[]string{"0.01", "raised to 0.19", "6.87 %", "--max-kl 0.01", "dynamic --calib (0.038)", "weights alone", "(0.12)"}},
		{"numbers", mix{loss: &outcome{loss: onnxq.OutputLoss{Damage: 0.02}, weights: onnxq.OutputLoss{Damage: 0.018}, usual: 0.002, limit: 0.032}}, []string{"--min-sqnr 27"}},
		{"raised a little", mix{loss: &outcome{loss: loss, usual: 0.01, limit: 0.03}}, nil},
		{"not used", mix{loss: &outcome{loss: onnxq.OutputLoss{Damage: 0.009}, usual: 0.01, limit: 0.19}}, nil},
		{"hardly used", mix{loss: &outcome{loss: onnxq.OutputLoss{Damage: 0.0021}, usual: 0.002, limit: 0.016}}, nil},
		{"not raised", mix{loss: &outcome{loss: loss, limit: 0.01}}, nil},
	} {
		got := strings.Join(c.mix.warnOfRaised(), "\n")
		if (got == "") != (c.want == nil) {
			t.Errorf("%s: %q", c.name, got)
		}
		for _, part := range c.want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q lacks %q", c.name, got, part)
			}
		}
	}
}

// A fit of no activations in codes has a warning.
func TestWarnOfFloats(t *testing.T) {
	f := &StaticFit{StaticActivations: onnxq.StaticActivations{Of: 2, Float: []string{"a"}}}
	if got := f.warnOfFloats(); got != nil {
		t.Errorf("%q", got)
	}
	f.Float = append(f.Float, "b")
	if got := strings.Join(f.warnOfFloats(), ""); !strings.Contains(got, "all 2 activations stay in float") || strings.Contains(got, "dynamic") {
		t.Errorf("%q", got)
	}
	f.AtRunTime = &onnxq.OutputLoss{Damage: 4.5e-5}
	if got := strings.Join(f.warnOfFloats(), ""); !strings.Contains(got, "dynamic --calib (damage 4.5e-05") {
		t.Errorf("%q", got)
	}
}
