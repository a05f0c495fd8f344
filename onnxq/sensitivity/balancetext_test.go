package sensitivity

import (
	"testing"

	"onnxquant/onnxq"
)

// The summary tells factors that are not needed from channels that could not be measured.
func TestBalanceText(t *testing.T) {
	for want, b := range map[string]onnxq.BalancedChannels{
		"no factors of channels are needed in 1 place":                       {Of: 1},
		"no factors of channels in 2 places: measuring the channels failed":  {Of: 2, Failed: true},
		"no factors of channels in 2 places: they do not lower the loss":     {Of: 2, Before: &onnxq.OutputLoss{}},
		"factors of channels in 1 of 2 places: damage 0.1, without them 0.2": {Of: 2, Places: 1, Before: &onnxq.OutputLoss{Damage: 0.2}, After: &onnxq.OutputLoss{Damage: 0.1}},
	} {
		f := &StaticFit{}
		f.Balance = &b
		if got := f.balanceText(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
