package onnxq

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"onnxquant/formats/errstat"
	"onnxquant/internal/discover"
	"onnxquant/onnxq/spec"
)

// Decision says whether a float tensor is quantized.
type Decision string

const (
	Quantize Decision = "quantize" // to codes
	Keep     Decision = "keep"     // in float
)

// Unselected begins the reason of weights whose operators, named behind it, Options.Ops leaves
// out.
const Unselected = discover.Unselected

// TensorPlan says what becomes of one float tensor of the model, and why.
type TensorPlan struct {
	Name      string   `json:"name"`  // with the path of its subgraph or function
	DType     string   `json:"dtype"` // as ONNX names it, such as FLOAT
	Shape     []int64  `json:"shape"`
	Bytes     int64    `json:"bytes"`          // of its elements in the model
	From      []string `json:"from,omitempty"` // tensors of the model of which Slice, Split or Concat made it
	Consumers []string `json:"consumers"`      // as Op:input, e.g. MatMul:1
	Nodes     []string `json:"nodes"`          // names of the consumers, or of their first outputs

	Decision Decision `json:"decision"`
	Reason   string   `json:"reason,omitempty"` // why it stays in float

	Format   spec.Format `json:"format,omitempty"`   // of the codes; "" if kept
	Axis     int         `json:"axis"`               // axis of the codes along which blocks run, if quantized
	Block    int         `json:"block,omitempty"`    // elements that share a scale, spec.PerChannel or spec.PerTensor
	Form     string      `json:"form,omitempty"`     // the operators that decode it
	Note     string      `json:"note,omitempty"`     // how it differs from the request
	Fallback string      `json:"fallback,omitempty"` // the part of Note about a format that was not asked for
	OutBytes int64       `json:"out_bytes"`          // codes, scales and zero points; Bytes if kept

	BitsPerWeight float64 `json:"bits_per_weight,omitempty"` // OutBytes in bits per element, if quantized
}

// TensorReport is the plan of a quantized tensor with the errors of its codes.
type TensorReport struct {
	TensorPlan
	MaxError float64 `json:"max_error"` // max |w - decoded w|
	MSE      float64 `json:"mse"`       // mean (w - decoded w)²
	SQNR     float64 `json:"sqnr_db"`   // 10·log10(mean w² / MSE); 999 if exact, because JSON has no infinity
}

// Report describes a finished conversion.
type Report struct {
	Plan     *Plan          `json:"plan"`      // as it was carried out
	Tensors  []TensorReport `json:"quantized"` // the quantized ones
	Verified bool           `json:"verified"`  // the output was read again and checked

	Calibration *Calibrated `json:"calibration,omitempty"` // with Options.Calibration

	Output   string        `json:"output"`              // the path that was given
	Data     string        `json:"data,omitempty"`      // external data file, if any
	MoreData []string      `json:"more_data,omitempty"` // further ones, of Options.ShardSize
	Replaced bool          `json:"replaced,omitempty"`  // there was a file at Output
	Elapsed  time.Duration `json:"elapsed_ns"`          // from the first read to the checked output
}

// Calibrated says what calibration has gained. Errors are relative squared errors on the samples
// that were held out, on average.
type Calibrated struct {
	Layers int     `json:"layers"`    // that have samples held out, one row of ten
	Lost   int     `json:"lost"`      // layers that are better off with algorithm mse, which they got
	Error  float64 `json:"error"`     // of the outputs of layers, with the codes that were written
	MSE    float64 `json:"error_mse"` // with those of algorithm mse

	Balanced int `json:"balanced"` // layers of algorithm awq that read channels with factors

	Output    float64 `json:"output_error"`            // of the outputs of the model
	OutputMSE float64 `json:"output_error_mse"`        // with the codes of algorithm mse
	Samples   int     `json:"output_samples"`          // on which the model's outputs were compared
	HeldOut   bool    `json:"output_samples_held_out"` // no codes were found by these; false with less than ten samples
	Refused   bool    `json:"refused"`                 // as a whole mse is better, and all layers got it
}

// String describes the conversion in a few lines: what was quantized, the sizes, and the
// weights with the largest errors.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q: %s", r.Output, r.Plan.sizes())
	for _, t := range r.Worst(3) {
		fmt.Fprintf(&b, "%q: SQNR %s, largest error %.3g\n", t.Name, sqnrText(t.SQNR), t.MaxError)
	}
	return b.String() + r.Plan.warnings()
}

// String describes the plan in a few lines: what is quantized, the sizes and the warnings. The sizes
// are those from before the caller edited the plan.
func (p *Plan) String() string { return p.sizes() + p.warnings() }

func (p *Plan) sizes() string {
	formats := map[string]int{}
	quantized := 0
	for _, t := range p.Tensors {
		if t.Decision == Quantize {
			formats[string(t.Format)]++
			quantized++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d float tensors quantized, %.1f %% of their bytes", quantized, len(p.Tensors), 100*p.Coverage)
	for i, format := range slices.Sorted(maps.Keys(formats)) {
		fmt.Fprintf(&b, "%s %d %s", [...]string{":", ","}[min(i, 1)], formats[format], format)
	}
	fmt.Fprintf(&b, "\nsize: %s -> %s\n", humanize.IBytes(uint64(p.InBytes)), humanize.IBytes(uint64(p.OutBytes)))
	return b.String()
}

func (p *Plan) warnings() string {
	var b strings.Builder
	for _, w := range p.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	return b.String()
}

// Worst returns the n quantized tensors with the lowest SQNR, the lowest first.
func (r *Report) Worst(n int) []TensorReport {
	sorted := slices.SortedStableFunc(slices.Values(r.Tensors), func(a, b TensorReport) int { return cmp.Compare(a.SQNR, b.SQNR) })
	return sorted[:max(min(n, len(sorted)), 0)]
}

func sqnrText(sqnr float64) string {
	if sqnr >= errstat.Exact {
		return "exact"
	}
	return fmt.Sprintf("%.1f dB", sqnr)
}
