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
