package discover

import (
	"cmp"
	"maps"

	"onnxquant/spec"
)

// Exceptions has, by path, the weights to which some option does not apply.
type Exceptions map[string]Exception

// Exception says which options do not apply to a weight. The zero value changes nothing.
type Exception struct {
	KeepFloat     string // why it stays in float, or ""
	ForceDQ       string // why it gets the style dq, or ""
	MSE           string // why it gets algorithm mse in spite of calibration data, or ""
	Scales        Scales // scales of another type
	Huge          bool   // MatMulNBits must not round its activations to 8 bits
	Level         Level  // accuracy_level of MatMulNBits in place of the default
	SmallerAsInt8 bool   // int8 takes fewer bytes than the format of the options
	Anew          bool   // it cannot have the codes of its content, and is quantized anew as the options say
}

// Level is an accuracy_level that replaces the default.
type Level struct {
	Level spec.AccuracyLevel
	Why   string
}

// Scales is a type of scales that replaces that of the options, because the scales do not fit it.
type Scales struct {
	Type spec.ScaleType
	Why  string
}

// And merges two sets of exceptions. If both have a reason, the reason in more wins.
func (e Exceptions) And(more Exceptions) Exceptions {
	all := maps.Clone(e)
	if all == nil {
		all = Exceptions{}
	}
	for path, m := range more {
		was := all[path]
		all[path] = Exception{
			KeepFloat: cmp.Or(m.KeepFloat, was.KeepFloat), ForceDQ: cmp.Or(m.ForceDQ, was.ForceDQ),
			MSE: cmp.Or(m.MSE, was.MSE), Scales: cmp.Or(m.Scales, was.Scales),
			Level: cmp.Or(m.Level, was.Level), Huge: m.Huge || was.Huge, SmallerAsInt8: m.SmallerAsInt8 || was.SmallerAsInt8,
			Anew: m.Anew || was.Anew,
		}
	}
	return all
}
