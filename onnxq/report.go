package onnxq

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"onnxquant/formats/errstat"
	"onnxquant/internal/discover"
	"onnxquant/spec"
)

// Decision says whether a float tensor is quantized.
type Decision string

const (
	Quantize Decision = "quantize" // to codes
	Keep     Decision = "keep"     // in float
)

// Unselected is how the reason of a weight begins whose operators are not in Options.Ops. The
// operators follow.
const Unselected = discover.Unselected

// FormatFloat is the reason of a weight that stays float because its format is spec.Float.
const FormatFloat = discover.FormatFloat

// TensorPlan says whether and how one float tensor of the model is quantized, and why.
type TensorPlan struct {
	Name      string   `json:"name"`           // with the path of its subgraph or function
	Node      string   `json:"node,omitempty"` // a node that reads it, if Name is a number that an exporter gave
	DType     string   `json:"dtype"`          // as ONNX names it, such as FLOAT
	Shape     []int64  `json:"shape"`
	Bytes     int64    `json:"bytes"`          // size of its elements in the model
	From      []string `json:"from,omitempty"` // tensors of the model that constant folding of Slice, Split or Concat made it from
	Consumers []string `json:"consumers"`      // nodes that read it, as Op:input, such as MatMul:1
	Nodes     []string `json:"nodes"`          // names of the consumers or of their first outputs

	Decision Decision `json:"decision"`
	Reason   string   `json:"reason,omitempty"` // why it stays in float

	Format   spec.Format `json:"format,omitempty"`   // format of the codes; "" if kept
	Axis     int         `json:"axis"`               // axis of the codes along which blocks run, if quantized
	Block    int         `json:"block,omitempty"`    // number of elements that share a scale, or spec.PerChannel or spec.PerTensor
	Form     string      `json:"form,omitempty"`     // operators that decode it
	Note     string      `json:"note,omitempty"`     // how the result differs from the request
	Fallback string      `json:"fallback,omitempty"` // part of Note about a format that was not requested
	OutBytes int64       `json:"out_bytes"`          // size of codes, scales and zero points; Bytes if kept

	BitsPerWeight float64 `json:"bits_per_weight,omitempty"` // OutBytes in bits per element, if quantized
}

// TensorReport is the plan of a quantized tensor with the errors of its codes.
type TensorReport struct {
	TensorPlan
	MaxError float64 `json:"max_error"` // max |w - decoded w|
	MSE      float64 `json:"mse"`       // mean (w - decoded w)²
	SQNR     float64 `json:"sqnr_db"`   // 10·log10(mean w² / MSE); 999 if there is no error, because JSON has no infinity
}

// Report describes a finished conversion.
type Report struct {
	Plan     *Plan          `json:"plan"`      // the plan that was carried out
	Tensors  []TensorReport `json:"quantized"` // quantized tensors
	Verified bool           `json:"verified"`  // the output was read again and compared

	Calibration *Calibrated `json:"calibration,omitempty"` // with Options.Calibration

	Output   string        `json:"output"`              // path of the output
	Data     string        `json:"data,omitempty"`      // external data file, if any
	MoreData []string      `json:"more_data,omitempty"` // further data files, with Options.ShardSize
	Replaced bool          `json:"replaced,omitempty"`  // a file at Output was replaced
	Elapsed  time.Duration `json:"elapsed_ns"`          // from the first read to the checked output
}

// Calibrated says what calibration gained. Errors are relative squared errors on held-out samples,
// on average.
type Calibrated struct {
	Layers int     `json:"layers"`    // layers with held-out rows (one row of ten)
	Lost   int     `json:"lost"`      // layers that fell back to algorithm mse, which was better
	Error  float64 `json:"error"`     // error of the outputs of layers, with the written codes
	MSE    float64 `json:"error_mse"` // the same with the codes of algorithm mse

	Columns int64 `json:"columns,omitempty"` // algorithm best: columns of weights for which it was tried
	GPTQ    int64 `json:"gptq,omitempty"`    // of these, columns with the codes of gptq, which are better on held-out rows

	Balanced int `json:"balanced"` // algorithm awq: layers that read channels with factors

	Experts []FallbackExperts `json:"experts,omitempty"` // experts that got the codes of algorithm mse

	Output    float64 `json:"output_error"`            // error of the outputs of the model
	OutputMSE float64 `json:"output_error_mse"`        // the same with the codes of algorithm mse
	Samples   int     `json:"output_samples"`          // number of samples on which the model's outputs were compared
	HeldOut   bool    `json:"output_samples_held_out"` // these samples were held out; false with fewer than ten samples
	Refused   bool    `json:"refused"`                 // all layers fell back to mse, which was better for the outputs of the model
	Tuned     *Tuned  `json:"tuned,omitempty"`         // with Options.Tune
	Poor      bool    `json:"poor,omitempty"`          // the error of the outputs leaves less than PoorOutputs: the model is of little use
}

// FallbackExperts are experts of a MoE, or matrices that one MatMul multiplies, that got the codes of algorithm mse, by their
// numbers.
type FallbackExperts struct {
	Weight      string `json:"weight"`
	Part        string `json:"part"`                   // what the numbers are of: "expert" or "matrix"
	Few         []int  `json:"few_rows,omitempty"`     // too few rows reach them
	NotHeldOut  []int  `json:"not_held_out,omitempty"` // enough rows reach them, but none of these is held out
	Worse       []int  `json:"worse,omitempty"`        // the codes found were worse on held-out rows
	Unsolved    []int  `json:"unsolved,omitempty"`     // no codes follow from their rows
	UnsolvedWhy string `json:"unsolved_why,omitempty"` // of the first of these
}

// Tuned says what Options.Tune gained. Losses are means over held-out samples.
type Tuned struct {
	Layers int     `json:"layers"`        // whose scales were tuned
	Scales int64   `json:"scales"`        // of these
	Steps  int     `json:"steps"`         // after which the loss was the least; 0: it was before the first, so nothing changed
	Loss   string  `json:"loss"`          // what was compared: KL divergence or squared error
	Before float64 `json:"loss_before"`   // with the scales that calibration found
	After  float64 `json:"loss_after"`    // with the written ones
	Why    string  `json:"why,omitempty"` // why no scale was tuned
}

// StaticActivations says which activations have codes, who decided that, and what it costs the outputs.
type StaticActivations struct {
	Samples int `json:"samples"`  // of the ranges
	HeldOut int `json:"held_out"` // other samples, on which losses were measured; 0: the same ones

	Of      int      `json:"activations"`        // with a scale of their own, if none is in float
	Float   []string `json:"float,omitempty"`    // in float because of what they cost the outputs, the worst first
	Wide    []string `json:"wide,omitempty"`     // of 16 bits: codes of 8 bits are too coarse, cost the outputs too much, or are computed wrongly
	Coarse  []string `json:"coarse,omitempty"`   // in float because codes are too coarse for their ranges
	Inner   []string `json:"inner,omitempty"`    // in float because they are inside of a normalization, Gelu or HardSwish that is written out
	NoRange []string `json:"no_range,omitempty"` // in float because they are infinite, NaN or empty

	Codes   *FoundCodes       `json:"codes,omitempty"`   // nil: data were to find no codes of weights
	Balance *BalancedChannels `json:"balance,omitempty"` // nil: no activation can have factors of channels

	EightBits *OutputLoss `json:"loss_8_bits,omitempty"` // with weights of 8 bits, if they have 7 because of that
	SevenBits *OutputLoss `json:"loss_7_bits,omitempty"`

	AllOperators  *OutputLoss `json:"loss_all_operators,omitempty"` // with codes around all operators, if products make floats because of that
	FloatProducts *OutputLoss `json:"loss_float_products,omitempty"`

	AtRunTime      *OutputLoss `json:"loss_at_run_time,omitempty"` // if activations are quantized at run time instead, all of them
	AtRunTimeBytes int64       `json:"size_at_run_time,omitempty"` // of the output then

	PerTensor  *OutputLoss `json:"loss_per_tensor,omitempty"` // with one scale for each weight, if they have one for each channel because of that
	PerChannel *OutputLoss `json:"loss_per_channel,omitempty"`

	Loss    OutputLoss `json:"loss"`          // of the output
	All     OutputLoss `json:"loss_all"`      // if all have codes
	Weights OutputLoss `json:"loss_weights"`  // of codes for weights alone, if that was measured
	Limit   float64    `json:"limit"`         // of the damage; 0 if the user gave others
	Met     bool       `json:"limits_hold"`   // the limits hold
	Engine  string     `json:"engine"`        // what ran the models
	Method  string     `json:"ranges_method"` // how ranges were found

	Clipped map[string]int `json:"clipped_ranges,omitempty"` // ranges that are not the minimum and maximum, by method
	MinMax  *OutputLoss    `json:"loss_minmax,omitempty"`    // of minimum and maximum, if ranges are clipped; all activations have codes
}

// DynamicActivations says which weights are multiplied by activations that get codes at run time, who decided that, and what
// it costs the outputs.
type DynamicActivations struct {
	Samples int `json:"samples"`  // that show which operators cost most
	HeldOut int `json:"held_out"` // other samples, on which losses were measured; 0: the same ones

	Of      int      `json:"weights"`           // whose operators can compute with codes; both weights of an LSTM are one
	Decoded []string `json:"decoded,omitempty"` // whose operators compute in float because of what they cost the outputs, the worst first

	EightBits *OutputLoss `json:"loss_8_bits,omitempty"` // with weights of 8 bits and a scale for each channel, if they have others because of that
	SevenBits *OutputLoss `json:"loss_7_bits,omitempty"`
	PerTensor *OutputLoss `json:"loss_per_tensor,omitempty"` // with one scale for each weight of a product, and 8 bits

	Loss    OutputLoss `json:"loss"`         // of the output
	All     OutputLoss `json:"loss_all"`     // if all compute with codes
	Weights OutputLoss `json:"loss_weights"` // of codes for weights alone, if that was measured
	Limit   float64    `json:"limit"`        // of the damage; 0 if the user gave others
	Met     bool       `json:"limits_hold"`  // the limits hold
	Engine  string     `json:"engine"`       // what ran the models
}

// AccuracyLevels says which weights have a MatMulNBits with activations in float, and what levels do to the outputs.
type AccuracyLevels struct {
	Samples int `json:"samples"`  // that codes of weights may be found with
	HeldOut int `json:"held_out"` // other samples, on which levels were compared; 0: the same ones

	Of     int      `json:"weights"`           // that can have a level
	Raised []string `json:"level_1,omitempty"` // weights that have level 1, the worst first; the others have level 4

	Chosen LevelLoss `json:"loss"`         // of the output
	Int8   LevelLoss `json:"loss_level_4"` // if all have level 4
	Float  LevelLoss `json:"loss_level_1"` // if all have level 1: of codes for weights alone
	Rows   int       `json:"rows"`         // of outputs, on these samples
	Limit  float64   `json:"limit"`        // of the damage
	Flips  int       `json:"most_flipped"` // limit of the flipped rows
	Engine string    `json:"engine"`       // what ran the models
}

// LevelLoss is what levels of accuracy do to the outputs.
type LevelLoss struct {
	Damage  float64 `json:"damage"`                // as in OutputLoss
	Flipped int     `json:"flipped"`               // rows whose largest element is not the float model's, though it is with level 1
	Seconds float64 `json:"cpu_seconds,omitempty"` // CPU time of a run
}

// BalancedChannels says what factors of channels gained: see Options.Balance.
type BalancedChannels struct {
	Of     int         `json:"of"`                    // activations, or groups of them, that can have factors
	Places int         `json:"balanced"`              // those that have some
	Failed bool        `json:"failed,omitempty"`      // channels could not be measured: a warning says why
	Before *OutputLoss `json:"loss_before,omitempty"` // without factors; nil: none promised a gain, so none were tried
	After  *OutputLoss `json:"loss_after,omitempty"`  // with them
}

// FoundCodes says what codes of weights gained that data found, by the inputs that weights get in the quantized model.
type FoundCodes struct {
	Algorithm spec.Algorithm `json:"algorithm"`
	Tried     int            `json:"tried"`       // weights for which codes were found
	Weights   int            `json:"weights"`     // that have them; 0 if they do not lower the loss
	Biases    int            `json:"biases"`      // that are corrected
	Before    OutputLoss     `json:"loss_before"` // of weights rounded to nearest
	After     OutputLoss     `json:"loss_after"`
}

// OutputLoss is the difference between the outputs of two models, of the output with the largest one. What was not measured
// is nil.
type OutputLoss struct {
	Damage float64  `json:"damage"`                      // KL divergence of distributions, or mean squared difference / mean square of others, added up over outputs
	KL     *float64 `json:"kl_divergence,omitempty"`     // mean, in nats
	SQNR   *float64 `json:"sqnr_db,omitempty"`           // 999: equal; -999: NaN or infinite
	Drop   *float64 `json:"changed_decisions,omitempty"` // share of rows with another largest element, or on another side of 0.5
	Rows   int      `json:"-"`                           // of which Drop is a share, of the output with the fewest
	Poor   string   `json:"poor,omitempty"`              // why the outputs say that the model is of little use, by the limits of onnxq/verify
}

// PoorOutputs is the SQNR of the outputs in dB below which a model is of little use, whatever its outputs are; onnxq/verify
// knows more of them.
const PoorOutputs = 6.0

// SQNR is that of the outputs of the model, in dB.
func (c *Calibrated) SQNR() float64 { return -10 * math.Log10(c.Output) }

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

// String describes the plan in a few lines: what is quantized, the sizes and the warnings. The
// sizes do not include the caller's edits.
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

// Files lists the files of the output, the model first.
func (r *Report) Files() []string {
	if r.Data == "" {
		return []string{r.Output}
	}
	return slices.Concat([]string{r.Output, r.Data}, r.MoreData)
}
