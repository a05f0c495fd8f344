package sensitivity

import (
	"testing"

	"onnxquant/onnxq"
)

// By exact sums, 7 bits are taken if the user's limits hold, or without limits if they at most double the damage.
func TestLittle(t *testing.T) {
	loss := func(damage, sqnr float64) onnxq.OutputLoss { return onnxq.OutputLoss{Damage: damage, SQNR: &sqnr} }
	for _, c := range []struct {
		limits       Limits
		eight, seven onnxq.OutputLoss
		want         bool
	}{
		{Limits{}, loss(0.01, 20), loss(0.02, 17), true},
		{Limits{}, loss(0.01, 20), loss(0.03, 15), false},
		{Limits{}, loss(0.0001, 40), loss(0.0015, 28), true},
		{Limits{SQNR: new(15.0)}, loss(0.01, 20), loss(0.03, 15.2), true},
		{Limits{SQNR: new(30.0)}, loss(0.0001, 40), loss(0.0015, 28), false},
		{Limits{SQNR: new(19.0)}, loss(0.01, 20), loss(0.011, 18.9), false},
	} {
		if got := c.limits.little(c.eight, c.seven); got != c.want {
			t.Errorf("%+v: from %g to %g is %v", c.limits, c.eight.Damage, c.seven.Damage, got)
		}
	}
}

// 7 bits are taken where no sample shows overflows if both widths lose at most a tenth of the limit.
func TestUnseen(t *testing.T) {
	loss := func(damage float64) onnxq.OutputLoss { return onnxq.OutputLoss{Damage: damage} }
	for _, c := range []struct {
		eight, seven, limit float64
		want                bool
	}{
		{1e-5, 2e-5, DefaultLimit, true},
		{0.0009, 0.001, DefaultLimit, true},
		{0.0009, 0.001, DefaultNumbersLimit, false},
		{0.0001, 0.0011, DefaultLimit, false},
		{0.0011, 0.0001, DefaultLimit, false},
	} {
		if got := unseen(loss(c.eight), loss(c.seven), c.limit); got != c.want {
			t.Errorf("%g and %g of %g: %v", c.eight, c.seven, c.limit, got)
		}
	}
}
