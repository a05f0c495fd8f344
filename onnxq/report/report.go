// Package report says on one page whether a quantized model is good enough to be used.
//
//	r, err := report.Models(ctx, "in.onnx", []string{"out.onnx"}, report.Options{})
//	err = r.WriteHTML(file)
//
// [Models] compares the models with package verify, tries other formats with package analyze, and lists
// known problems with package inspect. It only reads the models. The caller owns the [Report]: plain
// values, which encoding/json can write. [Report.WriteHTML] draws it as one self-contained file that
// loads nothing from the network. The same models and options give the same bytes, except for Bench.
//
// A report has histograms and sums of errors, never weights, so its size depends only on the number of
// weights.
package report

import (
	"math"

	"onnxquant/onnxq/bench"
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/inspect"
	"onnxquant/onnxq/verify"
	"onnxquant/rules"
	"onnxquant/spec"
)

// Report is all that is known about a quantized model, the first of Outs; the other models are only
// compared with it. Without Outs, the report is about the formats of an analysis and has no outputs.
type Report struct {
	Tool    string `json:"tool"`              // program and version
	Command string `json:"command,omitempty"` // that asked for the report

	In   File   `json:"in"`
	Outs []File `json:"outs"`

	Verdict   verify.Verdict `json:"verdict,omitempty"`   // on the first of Outs
	Judgement *Judgement     `json:"judgement,omitempty"` // how it came about
	Sizes     Sizes          `json:"sizes"`
	Weights   []Weight       `json:"weights"` // the most expensive first
	Outputs   *Execution     `json:"execution,omitempty"`
	Random    bool           `json:"random_inputs"` // the outputs were compared on random inputs
	Hazards   []Hazard       `json:"hazards"`       // of the quantized model
	Kept      []Kept         `json:"kept"`          // tensors that stay float, by reason, the most bytes first
	Notes     []string       `json:"notes"`         // differences that do not matter, and warnings
	Fix       *Suggestion    `json:"suggestion,omitempty"`
	Trace     *Trace         `json:"trace,omitempty"` // of the first of Outs, if it was asked for
	Bench     *Bench         `json:"bench,omitempty"` // speed of In and Outs, in this order, if it was asked for

	Verification *verify.Report `json:"-"` // of the first of Outs
}

// Hazard is a known problem of a runtime with the quantized model.
type Hazard = inspect.Hazard

// Trace compares values inside of the models.
type Trace = verify.Trace

// Bench has the speed of models in ONNX Runtime.
type Bench struct{ bench.Report }

// Execution compares the outputs.
type Execution = verify.Execution

// File is a model.
type File struct {
	Path   string   `json:"path"`
	Bytes  int64    `json:"bytes"`  // with external data
	SHA256 []Digest `json:"sha256"` // of its files, the model first

	IR     int64                  `json:"ir"`
	Opsets []inspect.OpsetVersion `json:"opsets"`

	// By the record of provenance: the flags of the conversion, and whether data calibrated it. The codes of
	// calibrated weights keep the error of outputs small, not that of weights.
	Flags      string `json:"flags,omitempty"`
	Calibrated bool   `json:"calibrated,omitempty"`

	// Of a quantized model, compared with the float model:
	Error   float64         `json:"error"` // root mean square of the errors of the weights; see Sizes
	Verdict verify.Verdict  `json:"verdict,omitempty"`
	Outputs []verify.Output `json:"outputs,omitempty"` // if they were compared

	// OutputError is the largest error of an output, relative to its root mean square; 0 if none is known.
	OutputError float64 `json:"output_error,omitempty"`
}

// Digest is the SHA-256 of a file.
type Digest struct {
	File string `json:"file"` // its base name
	Hex  string `json:"hex"`
}

// Judgement has the reasons for a verdict.
type Judgement struct {
	Reasons  []string `json:"reasons"`
	Checks   []Check  `json:"checks"`
	Failures []string `json:"failures"`
	Hints    []string `json:"hints,omitempty"` // what to do about the verdict
}

// Check compares the worst of something with its limit.
type Check struct {
	What  string `json:"what"`
	Unit  string `json:"unit,omitempty"`
	Limit string `json:"limit"`
	Given bool   `json:"limit_given"` // by the user; otherwise it is the default, which only finds broken models
	Done  bool   `json:"done"`        // it was compared
	OK    bool   `json:"ok"`
	Worst []At   `json:"worst"` // the worst first
}

// At is a value at a place.
type At struct {
	Where string  `json:"where"`
	Value float64 `json:"value"`
}

// Sizes compares sizes and errors of the quantized models with other possible formats. The error of a
// model is the root mean square of the errors of Count weights: all weights that any of the models, or
// a candidate, quantizes. The error of a weight is its root mean square error divided by its root mean
// square.
type Sizes struct {
	Count      int         `json:"weights"`
	FloatBytes int64       `json:"float_bytes"`
	Candidates []SizePoint `json:"candidates"`           // one format for all weights
	Frontier   []SizePoint `json:"frontier"`             // the best mixes of the candidates, the smallest first
	ByOutputs  []SizePoint `json:"by_outputs,omitempty"` // some candidates, without data, by the errors of outputs, if a model is calibrated
	Skipped    string      `json:"skipped,omitempty"`    // why Candidates and Frontier are empty
	SameSize   *SizePoint  `json:"same_size,omitempty"`  // of Frontier: the least error in at most the size of the model
	SameError  *SizePoint  `json:"same_error,omitempty"` // of Frontier: the smallest with at most the error of the model

	Recommended *SizePoint `json:"recommended,omitempty"` // by an analysis
}

// OwnError is the error of the first model over the weights that it quantizes, independent of the
// other models and candidates.
func (r *Report) OwnError() float64 {
	noise := 0.0
	for _, w := range r.Weights {
		noise += w.Error * w.Error
	}
	return math.Sqrt(noise / float64(max(len(r.Weights), 1)))
}

// SizePoint is the size and the error of a model.
type SizePoint struct {
	Name  string  `json:"name,omitempty"`
	Bytes int64   `json:"bytes"`
	Error float64 `json:"error"`
}

// Weight is a weight that is quantized or otherwise changed.
type Weight struct {
	Name       string  `json:"name"`
	Node       string  `json:"node,omitempty"` // a node that reads it, if Name is a number that an exporter gave
	DType      string  `json:"dtype"`
	Shape      []int64 `json:"shape"`
	Format     string  `json:"format"` // type of the codes, and the block size
	Form       string  `json:"form"`   // operators that decode it
	FloatBytes int64   `json:"float_bytes"`
	Bytes      int64   `json:"bytes"`
	Error      float64 `json:"error"` // as of Sizes
	Cost       float64 `json:"cost"`  // Error × Bytes
	SQNR       float64 `json:"sqnr_db"`
	MaxError   float64 `json:"max_error"`
	Broken     int64   `json:"broken,omitempty"` // elements that are NaN or infinite in one model only; left out of the errors

	Worst   *compare.BlockMatch `json:"worst_block,omitempty"`
	Detail  *compare.Detail     `json:"detail,omitempty"`
	Choices []SizePoint         `json:"choices"` // other possible formats for this weight
}

// Kept has float tensors that stayed float for one reason.
type Kept struct {
	Reason string   `json:"reason"`
	Bytes  int64    `json:"bytes"`
	Names  []string `json:"names"`
}

// Suggestion is a precision_info that spends bytes on the most expensive weights.
type Suggestion struct {
	Weights   int              `json:"weights"`
	Precision *rules.Precision `json:"precision_info"`
	Before    float64          `json:"error_before"` // of the model
	After     float64          `json:"error_after"`
	Bytes     int64            `json:"more_bytes"`
	Choices   []Suggested      `json:"choices"`
}

// Suggested is the suggestion for a weight.
type Suggested struct {
	Name      string         `json:"name"`
	Candidate spec.Candidate `json:"candidate"`
	Before    float64        `json:"error_before"`
	After     float64        `json:"error_after"`
	Bytes     int64          `json:"more_bytes"`
}
