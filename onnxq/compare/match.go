package compare

import (
	"cmp"
	"context"
	"slices"

	"onnxquant/internal/provenance"
	"onnxquant/internal/simplify"
	"onnxquant/onnxq"
	"onnxquant/onnxq/restyle"
	"onnxquant/spec"
)

// Match is the result of MatchWeights: whether two float models are equal except for their
// weights, and the errors of the weights.
type Match struct {
	// Problems are differences in what the models compute, apart from weights: an input or output that
	// is missing or has another type, or a node that is missing, new or different.
	Problems []string `json:"problems"`

	// Notes are differences that do not matter: names, metadata, or a higher opset.
	Notes []string `json:"notes"`

	// Folded counts the nodes and constants that are folded in the second model, as onnxq.Options.Fold does. The
	// first model was folded in the same way, and compared after that.
	Folded int `json:"folded,omitempty"`

	// Balanced counts the activations whose channels are divided by factors in the second model, as onnxq.Options.Balance
	// does, by its record. The first model got the same factors, and was compared after that.
	Balanced int `json:"balanced,omitempty"`

	Nodes   int           `json:"nodes"`   // of the first model, with subgraphs
	Weights []WeightMatch `json:"weights"` // float constants that differ or were quantized, if anything reads or returns them
	Same    int           `json:"same"`    // float constants that are equal
	Rounded int           `json:"rounded"` // weights of Same that are float32 in the first model and half in the second

	// Activations counts the tensors with a QuantizeLinear and a DequantizeLinear that only the second
	// model has, by the type of their codes.
	Activations map[string]int `json:"activations,omitempty"`

	FloatType string `json:"half,omitempty"` // float16 or bfloat16, if float32 became that
}

// WeightMatch compares a weight w of the first model with weight v of the second.
type WeightMatch struct {
	Name  string  `json:"name"`           // in the first model, with the path of its subgraph
	Node  string  `json:"node,omitempty"` // a node that reads it, if Name is a number that an exporter gave
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`

	Form     string `json:"form"` // form of v before decoding, as in recognize.Weight, or "float"
	CodeType string `json:"code_type,omitempty"`
	Block    int64  `json:"block,omitempty"` // elements that share a scale, spec.PerChannel or spec.PerTensor
	Bytes    int64  `json:"bytes"`           // of w
	OutBytes int64  `json:"out_bytes"`       // codes, scales and zero points; Bytes if not quantized

	MaxError float64 `json:"max_error"` // max |w - v|
	MSE      float64 `json:"mse"`
	SQNR     float64 `json:"sqnr_db"`          // 10·log10(mean w² / MSE); 999 if exact
	Gain     float64 `json:"gain"`             // Σwv / Σw²: below 1 if v is smaller than w; 1 if w is zero
	Misfit   float64 `json:"misfit_db"`        // how much higher SQNR would be with the best scale, and zero point or min, for each block; 0 below 1 dB, if scales are powers of two, or if elements are rounded to the nearest value of their block
	Stray    float64 `json:"stray"`            // the element that is farthest from the nearest value in its block, beyond what it must be; in units of the usual error of the block
	Clipped  float64 `json:"clipped"`          // share of the squared error of elements beyond the range of their block; 0 if scales are powers of two
	Broken   int64   `json:"broken,omitempty"` // elements where w or v is NaN or infinite and they differ; left out of the errors

	// Nearest: the weight is a bias, its scale is that of the product to which it is added, and its codes
	// are the nearest ones. Its SQNR says nothing then, because a small bias has small codes, or none.
	Nearest bool `json:"nearest,omitempty"`
	Bias    bool `json:"bias,omitempty"` // the same, with any codes: data may have corrected them

	Largest    float64 `json:"largest"`              // largest |w|
	Superblock int64   `json:"superblock,omitempty"` // elements whose scales share a scale, if a weight has several superblocks

	Worst  *BlockMatch `json:"worst_block,omitempty"` // block with the lowest SQNR, if there are errors
	Detail *Detail     `json:"detail,omitempty"`      // set by MatchDecoded, for MostDetails weights

	// WorstLarge is the worst of the blocks, or superblocks, whose mean square is at least 1 % of that
	// of the weight.
	WorstLarge *BlockMatch `json:"worst_large_block,omitempty"`

	// LeastAlike is the block with the lowest cosine, among the same blocks as WorstLarge.
	LeastAlike *BlockMatch `json:"least_alike_block,omitempty"`

	// WorstGain is the block whose gain is farthest from 1, among the same blocks. Only blocks with at
	// least 8 elements and a cosine of at least 0.95 count.
	WorstGain *BlockMatch `json:"worst_gain_block,omitempty"`
}

// BlockMatch is a block of elements that share a scale.
type BlockMatch struct {
	Shape    []int64 `json:"shape"`     // of the codes; the weight may be a reshaped view of them
	At       []int64 `json:"at"`        // index of its first element, in Shape
	Axis     int     `json:"axis"`      // of Shape, as in recognize.Weight; -1: one scale for the whole tensor
	Length   int64   `json:"length"`    // elements
	MaxError float64 `json:"max_error"` // of its elements, as MSE and SQNR in WeightMatch
	MSE      float64 `json:"mse"`
	SQNR     float64 `json:"sqnr_db"`
	Cosine   float64 `json:"cosine"` // of w and v; -1 if v is zero
	Gain     float64 `json:"gain"`   // as in WeightMatch
}

// MatchWeights compares a float model a with b, the same model after quantizing and
// restyle.Dequantize. folded is the report of Dequantize, or nil. Nodes are matched by their outputs.
// If b has a higher opset, a is first raised to it, as [onnxq.Convert] does. Models that do not belong
// together give problems, not an error.
//
// Progress, if not nil, is called with the bytes of a that were compared, and their total.
func MatchWeights(ctx context.Context, a, b *onnxq.Model, folded *restyle.Report, progress func(done, total int64)) (*Match, error) {
	c := comparison{a: Decoded{Model: a}, b: Decoded{Model: b, Folded: folded}, progress: progress}
	return c.run(ctx)
}

// comparison is one that MatchWeights or MatchDecoded is asked for.
type comparison struct {
	a, b     Decoded
	detail   bool                    // set WeightMatch.Detail
	simple   *simplify.Model         // a as Options.Fold makes it, if b was made from that; or nil
	progress func(done, total int64) // may be nil
}

func (c *comparison) run(ctx context.Context) (*Match, error) {
	if err := cmp.Or(c.a.Model.Ready(ctx), c.b.Model.Ready(ctx)); err != nil {
		return nil, err
	}
	for _, d := range []*Decoded{&c.a, &c.b} {
		if d.Folded == nil {
			d.Folded = &restyle.Report{}
		}
	}
	return c.runFolded(ctx)
}

// runFolded compares with the folded model, if the record of the second says that it was folded. Without such a
// record, it does so if the models differ otherwise.
func (c *comparison) runFolded(ctx context.Context) (*Match, error) {
	record := provenance.Of(c.b.Model.Graph().File.Proto)
	recorded := slices.ContainsFunc(record, func(s spec.Step) bool { return s.Folded > 0 })
	var first *Match
	if !recorded {
		var err error
		if first, err = c.anyOpset(ctx); err != nil || len(first.Problems) == 0 {
			return first, err
		}
	}
	var err error
	if c.simple, err = simplify.New(c.a.Model.Graph()); err != nil || !recorded && c.simple.Total() == 0 {
		return first, err
	}
	second, err := c.anyOpset(ctx)
	if err == nil && !recorded && len(second.Problems) > 0 {
		return first, nil
	}
	return second, err
}

// anyOpset compares. If the models differ, it hides operators from the adapters of opsets and compares again.
func (c *comparison) anyOpset(ctx context.Context) (*Match, error) {
	first, err := c.match(ctx, nil)
	if err != nil || len(first.Problems) == 0 || c.a.Model.Graph().Opset == c.b.Model.Graph().Opset {
		return first, err
	}
	// Operators on codes may have hidden ranks from the adapters of opsets, in OUT or in what it was
	// restyled from.
	for _, forms := range [][]string{operatorsOnCodes, nil} {
		opaque := coded(c.b.Model.Graph(), c.b.Folded.Weights, forms)
		if len(opaque) == 0 {
			continue
		}
		if second, err := c.match(ctx, opaque); err != nil || len(second.Problems) == 0 {
			return second, err
		}
	}
	return first, nil
}
