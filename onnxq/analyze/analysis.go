package analyze

import (
	"slices"

	"onnxquant/quality"
	"onnxquant/rules"
	"onnxquant/spec"
)

// Analysis has the error and size of every candidate for every weight, and the recommended
// candidate of each.
//
// The error of a weight is its root mean square error divided by its root mean square:
// 10^(-SQNR/20). The error of a model is the root mean square of the errors of its weights.
// All weights count the same, whatever their size, because noise in each matrix adds to the
// noise of the activations alike. It measures weights, not the outputs of the model.
type Analysis struct {
	Candidates []spec.Candidate `json:"candidates"`
	Weights    []Weight         `json:"weights"`
	Totals     []Total          `json:"totals"`   // of each candidate, used for all weights
	Frontier   []Point          `json:"frontier"` // the best mixes, smallest first: no other mix has a smaller size and a smaller error

	DamageFrontier []DamagePoint `json:"damage_frontier,omitempty"` // the same by damage, if that was measured

	MaxError float64 `json:"max_error,omitempty"` // the bounds
	MaxSize  int64   `json:"max_size,omitempty"`

	FloatBytes int64   `json:"float_bytes"` // size of the output with all weights in float
	OutBytes   int64   `json:"out_bytes"`   // exact size of the output as recommended
	Error      float64 `json:"error"`       // error of the model as recommended

	OpsetBefore int64    `json:"opset_before,omitempty"` // of the model
	OpsetAfter  int64    `json:"opset_after,omitempty"`  // of the output as recommended
	OpsetFor    []string `json:"opset_for,omitempty"`    // formats that need it, if it is raised

	// Damage is the sum of the weights' damages as recommended, if they were measured.
	Damage *float64 `json:"damage,omitempty"`

	// Gap limits the distance between the recommendation and the best possible mix of these
	// candidates. It is a share of the recommendation: of its bytes or, if only the size is bounded,
	// of its error.
	Gap float64 `json:"gap"`

	Precision *rules.Precision `json:"precision_info"` // the recommendation
}

// Weight is the analysis of one weight.
type Weight struct {
	Name         string         `json:"name"`
	Node         string         `json:"node,omitempty"` // a node that reads it, if Name is a number that an exporter gave
	DType        string         `json:"dtype"`
	Shape        []int64        `json:"shape"`
	Bytes        int64          `json:"bytes"`
	Distribution Distribution   `json:"distribution"`
	Choices      []Choice       `json:"choices"`     // the candidates that are possible
	Recommended  spec.Candidate `json:"recommended"` // one of Choices
}

// ChoiceOf returns the choice of a candidate, if it is possible.
func (w *Weight) ChoiceOf(c spec.Candidate) (Choice, bool) {
	i := slices.IndexFunc(w.Choices, func(choice Choice) bool { return choice.Candidate == c })
	if i < 0 {
		return Choice{}, false
	}
	return w.Choices[i], true
}

// Choice is a candidate applied to a weight.
type Choice struct {
	Candidate spec.Candidate `json:"candidate"`
	Bytes     int64          `json:"bytes"`
	Error     float64        `json:"error"`
	Block     int            `json:"block,omitempty"` // block size it gets, if not the candidate's

	// Damage is the effect of this choice alone on the outputs of the model, if that is asked for. If
	// it cannot be measured, it is estimated from the error.
	Damage    *float64 `json:"damage,omitempty"`
	Estimated bool     `json:"estimated,omitempty"`

	Stats quality.Stats `json:"stats"`

	growth  float64 // bytes that it adds to the output, against float
	decoded bool    // at every run of the model
}

// Total is a candidate applied to all weights. Weights that cannot have it stay in float.
type Total struct {
	Candidate spec.Candidate `json:"candidate"`
	OutBytes  int64          `json:"out_bytes"`
	Error     float64        `json:"error"`
	Damage    *float64       `json:"damage,omitempty"`
}

// Point is the size and the error of a mix.
type Point struct {
	OutBytes int64   `json:"out_bytes"` // estimated, to some bytes for each weight
	Error    float64 `json:"error"`
}

// DamagePoint is the size and the damage of a mix.
type DamagePoint struct {
	OutBytes int64   `json:"out_bytes"` // estimated, as in a Point
	Damage   float64 `json:"damage"`
}

// noise adds up over weights: it is the damage or, if that is not measured, the squared error.
func (c *Choice) noise() float64 {
	if c.Damage != nil {
		return *c.Damage
	}
	return c.Error * c.Error
}
