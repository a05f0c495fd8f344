package verify

import (
	"fmt"

	"onnxquant/onnxq/compare"
)

// Report is the result of a comparison.
type Report struct {
	Verdict  Verdict  `json:"verdict"`
	Passed   bool     `json:"passed"`             // nothing failed: the verdict may still be poor
	Failures []string `json:"failures"`           // empty if nothing failed
	Poor     []string `json:"poor,omitempty"`     // reasons why OUT is of little use
	Warnings []string `json:"warnings,omitempty"` // what made the comparison weaker
	Hints    []string `json:"hints,omitempty"`    // what to do about the verdict

	Limited bool   `json:"limits_given"` // the user gave a limit
	Given   bool   `json:"inputs_given"` // the inputs are the user's
	Limits  Limits `json:"limits"`

	Failed map[Check]int `json:"-"` // number of Failures of each kind

	// Swapped: the first model has quantized weights and the second one has none.
	Swapped bool `json:"-"`

	Written   Written               `json:"written"` // whether OUT is what a conversion wrote
	Structure Structure             `json:"structure"`
	Weights   []compare.WeightMatch `json:"weights"` // weights that are quantized or differ
	Same      int                   `json:"same"`    // number of equal float constants
	Rounded   int                   `json:"rounded"` // weights of Same that are equal after rounding to float16 or bfloat16
	Execution Execution             `json:"execution"`
	Trace     *Trace                `json:"trace,omitempty"` // with Options.Trace
}

// Check is a kind of failure.
type Check string

const (
	CheckWritten   Check = "written"   // OUT was edited since a conversion wrote it
	CheckStructure Check = "structure" // something other than weights changed
	CheckWeights   Check = "weights"   // SQNR of weights
	CheckBlocks    Check = "blocks"    // SQNR of blocks of weights
	CheckOutputs   Check = "outputs"   // SQNR of outputs
	CheckCosine    Check = "cosine"    // of outputs
	CheckLargest   Check = "largest"   // error of elements
	CheckFinite    Check = "finite"    // elements that are finite in one model only
	CheckRuns      Check = "runs"      // OUT does not load or run in ONNX Runtime, and IN does
	CheckCompared  Check = "compared"  // the outputs were not compared although that is required
)

// Structure compares everything but weights.
type Structure struct {
	Folded   int      `json:"folded,omitempty"`   // nodes and constants that are folded in OUT
	Balanced int      `json:"balanced,omitempty"` // activations with factors of channels in OUT
	Nodes    int      `json:"nodes"`              // of the float model
	Problems []string `json:"problems"`           // differences in the computation
	Notes    []string `json:"notes"`              // differences that do not matter, such as the opset

	// Unread: OUT computes with codes of weights that it makes of floats itself, by operators such as QLinearConv. Nodes and
	// weights of this form are not compared, and Problems say nothing.
	Unread bool `json:"unread,omitempty"`

	// Activations counts the tensors that only the quantized model quantizes at run time, by the type
	// of the codes.
	Activations map[string]int `json:"activations,omitempty"`

	Caches []string `json:"caches,omitempty"` // inputs for key-value caches of int8 that only OUT has

	FloatType string `json:"half,omitempty"` // float16 or bfloat16, if float32 became that
}

// Execution compares the outputs.
type Execution struct {
	Required     bool          `json:"required"` // it is a failure if the outputs were not compared
	Compared     bool          `json:"compared"`
	Reasons      []string      `json:"reasons"` // why an engine did not run the models
	Engine       string        `json:"engine,omitempty"`
	Library      string        `json:"library,omitempty"`        // the file, if the engine is a shared library
	Samples      int           `json:"samples"`                  // runs of each model
	NotFinite    *NotFinite    `json:"not_finite,omitempty"`     // samples without a finite output
	Inputs       []Input       `json:"inputs"`                   // of the first one
	Sizes        string        `json:"sizes,omitempty"`          // of symbolic dimensions, if the inputs are made up
	Decoded      bool          `json:"decoded,omitempty"`        // codes of OUT became floats for the run
	Outputs      []Output      `json:"outputs"`                  // of OUT with its weights as floats
	Folded       float64       `json:"folded_sqnr_db,omitempty"` // the least of the outputs of IN, folded and balanced as OUT is, against IN's
	Ranges       []Reach       `json:"ranges,omitempty"`         // of codes of activations against values, the worst first
	QuantizedRun *QuantizedRun `json:"itself,omitempty"`         // nil: OUT was not run as it is, or has nothing but floats
	Disagreement *Disagreement `json:"disagreement,omitempty"`   // of two runs of one model
}

// Final returns the outputs of the run that is nearest to what users of OUT get.
func (x *Execution) Final() []Output {
	if x.QuantizedRun != nil && x.QuantizedRun.Reason == "" {
		return x.QuantizedRun.Outputs
	}
	return x.Outputs
}

// Input describes an input of the run.
type Input struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Dims  []int64 `json:"shape"`
	Made  string  `json:"made,omitempty"` // what the values are, if they are not from files
}

// MadeUp says what the values of inputs are that are not from files, for people.
func (x *Execution) MadeUp() (texts []string) {
	const most = 4
	var names = map[string][]string{}
	var kinds []string
	for _, in := range x.Inputs {
		if in.Made == "" {
			continue
		}
		if names[in.Made] == nil {
			kinds = append(kinds, in.Made)
		}
		names[in.Made] = append(names[in.Made], in.Name)
	}
	for i, kind := range kinds {
		if i == most {
			return append(texts, fmt.Sprintf("and %d more", len(kinds)-most))
		}
		text := "input " + names[kind][0]
		if more := len(names[kind]) - 1; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		texts = append(texts, text+": "+kind)
	}
	return texts
}

// Output compares an output of the quantized model with the same output of the float model. Errors are
// quantized - float, element by element.
type Output struct {
	Name     string  `json:"name"`
	DType    string  `json:"dtype"`
	Dims     []int64 `json:"shape"`
	MaxError float64 `json:"max_error"`       // the largest |error|
	Relative float64 `json:"relative_error"`  // MaxError over the largest |float|
	SQNR     float64 `json:"sqnr_db"`         // 10·log10(Σfloat² / Σerror²), at most 999; 999 if equal
	Cosine   float64 `json:"cosine"`          // of float and quantized; 1 if both are zero
	Varying  float64 `json:"varying_sqnr_db"` // as SQNR, of what differs between rows: Σ(float - mean)² / Σerror²
	Rows     int     `json:"rows"`            // along the last axis, of all runs
	Elements int     `json:"elements"`        // pairs that were compared: both are finite

	State bool `json:"state,omitempty"` // it is an input of the next run

	// Broken counts pairs in which one value is NaN or infinite and the other differs. The sums leave
	// these pairs out.
	Broken int `json:"broken,omitempty"`

	Distribution *Distribution `json:"distribution,omitempty"` // if rows of the output are known to be distributions
}

// NotCompared reports whether the only failure is that the outputs were not compared, or those of many samples.
func (r *Report) NotCompared() bool {
	x := r.Execution
	return len(r.Failures) == 1 && (x.Required && !x.Compared || r.fewFinite())
}

// fewFinite reports whether outputs of the user's inputs are a failure because too few are finite.
func (r *Report) fewFinite() bool {
	return r.Given && r.Execution.Compared && r.Execution.NotFinite.tooMany()
}
