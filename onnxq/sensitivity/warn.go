package sensitivity

import (
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize/english"
)

// muchRaised is how many times the default limit a raised limit, and the damage, are that have a warning.
const muchRaised = 4

// warnOfRaised returns a warning if the default limit was raised much, and the outputs lose much more than it.
func (x *mix) warnOfRaised() []string {
	l := x.loss
	if l.usual == 0 || l.limit <= muchRaised*l.usual || l.loss.Damage <= muchRaised*l.usual {
		return nil
	}
	text := fmt.Sprintf("the default limit of the damage, %.2g, was raised to %.2g, because codes for weights alone do %.2g: OUT has %s; ",
		l.usual, l.limit, l.weights.Damage, lossText(l.loss, Limits{}))
	if l.usual == DefaultLimit {
		text += fmt.Sprintf("--max-kl %g", l.usual)
	} else {
		text += fmt.Sprintf("--min-sqnr %.0f", -10*math.Log10(l.usual))
	}
	text += " allows no more than the default"
	if less := x.less(); len(less) > 0 {
		text += ", and less is lost by " + strings.Join(less, ", or ")
	}
	return []string{text}
}

// less lists what loses less than the output.
func (x *mix) less() (ways []string) {
	most := x.loss.loss.Damage * (1 - leastAtRunTime)
	if x.reached != nil && *x.reached < most {
		ways = append(ways, fmt.Sprintf("--activations dynamic --calib (%.2g)", *x.reached))
	}
	if w := x.loss.weights.Damage; w < most {
		ways = append(ways, fmt.Sprintf("weights alone, --target ort -b 8 -g 32 --ops all (%.2g)", w))
	}
	return ways
}

// warnOfFloats returns a warning if no activation has codes.
func (f *StaticFit) warnOfFloats() []string {
	if f.Of == 0 || len(f.Float) < f.Of {
		return nil
	}
	text := fmt.Sprintf("no activation has codes, as all %s stay in float: OUT is a model of weights alone, no faster than the float model; use -b 8 --target ort without --activations",
		english.Plural(f.Of, "activation", ""))
	if x := f.AtRunTime; x != nil {
		text += fmt.Sprintf(", or --activations dynamic --calib (damage %.2g with all in codes)", x.Damage)
	}
	return []string{text}
}
