package tune

import (
	"math"
	"strings"
	"testing"

	"onnxquant/onnxq"
)

// Outputs that are NaN keep no limit, although nothing can be compared.
func TestNotFinite(t *testing.T) {
	limit := 0.1
	broken := Quality{Loss: &onnxq.OutputLoss{Damage: math.MaxFloat64}}
	for _, g := range []Goal{{MaxKL: &limit}, {MinSQNR: &limit}, {MaxDrop: &Drop{Amount: limit}}} {
		if text := g.lost(Quality{}, broken, false); !strings.Contains(text, "NaN") {
			t.Errorf("%v: %q", g.String(), text)
		}
	}
}
