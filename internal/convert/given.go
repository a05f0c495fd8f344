package convert

import (
	"errors"
	"io"
	"slices"

	"github.com/dustin/go-humanize/english"

	"onnxquant/formats/dtype"
	"onnxquant/internal/coded"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/packing"
	"onnxquant/internal/quantize"
	"onnxquant/internal/rewrite"
	"onnxquant/internal/shapes"
	"onnxquant/spec"
)

// given gives a weight the codes that its content has already, unless it is stored in another way.
func given(w rewrite.Weight, as *quantize.Weight) {
	g, c := w.Given, w.Choice
	plain := slices.Contains([]spec.Style{spec.DQ, spec.NBits, spec.QDQ}, c.Style) && !c.NBits.FloatZeros
	scales := !c.ScaleType.Smaller() || c.ScaleType == spec.ScaleFloat16 && g.ScaleType == dtype.Float16
	last := len(w.Shape) - 1
	rows := as.Inner == 1 && as.K == w.Shape[last] && g.Axis == last
	columns := as.Outer == shapes.Count(w.Shape[:last-1]) && as.Inner == w.Shape[last] && g.Axis == last-1
	if !plain || !scales || !rows && !columns || c.Format != g.Format || c.ZeroPoint != g.ZeroPoint || as.Block != g.Block || c.Mins != (g.Mins != nil) {
		return
	}
	exact := holds(as.ScaleType, g)
	if exact && columns && as.Outer == 1 && g.Turned != nil && c.Style == spec.NBits && c.NBits.Product {
		g = g.Turned
		inRows(as)
	}
	as.Found = &quantize.Found{Codes: fixed{g.Codes}, Scales: fixed{g.Scales}, Zeros: fixed{g.Zeros}, Mins: g.Mins, Exact: exact}
	as.TensorScale = g.TensorScale
}

// holds reports whether stored scales of type t are those of the content, not rounded. Formats with scales of fewer bits come with them.
func holds(t dtype.DType, g *coded.Content) bool {
	return t != dtype.Float16 && t != dtype.BFloat16 || t == g.ScaleType
}

// keepsCodes reports whether a weight gets the codes that its content has.
func keepsCodes(as *quantize.Weight) bool {
	if as.Found == nil {
		return false
	}
	_, ok := as.Found.Codes.(fixed)
	return ok // others were found by calibration
}

// sameBlocks reports whether a weight is encoded as the blocks of MXFP4 that its values come from: that is exact.
func sameBlocks(w rewrite.Weight) bool {
	g, c := w.Given, w.Choice
	return g.Format == spec.MXFP4 && c.Format == g.Format && int64(c.Block) == g.Block && c.Operand.Axis == g.Axis
}

// inRows lets a matrix [K,N] that is stored as [N,K] be read as that.
func inRows(as *quantize.Weight) {
	as.Outer, as.Inner = as.Inner, 1
	for _, at := range []*packing.Placement{&as.CodesAt, &as.ScalesAt, &as.ZerosAt} {
		at.Outer, at.Inner, at.Transposed = at.Inner, 1, false
	}
}

// asStored lets a matrix whose transpose is stored be read as that. Its codes are turned if the output does not have the transpose.
func asStored(w rewrite.Weight, as *quantize.Weight, src *modelfile.Payload) {
	t, ok := src.Reader().(*coded.Transposed)
	plain := as.Rounded == nil && as.Encoding == nil && (as.Algorithm == spec.RTN || as.Algorithm == spec.MSE)
	if !ok || !plain || as.Outer != 1 || len(w.Shape) != 2 || as.Inner != w.Shape[1] {
		return
	}
	switch {
	case w.Choice.Style == spec.NBits && w.Choice.NBits.Product:
		inRows(as)
	case w.Choice.Style != spec.DQ || !as.ReadTurned():
		return
	}
	as.Source = modelfile.Computed(t.From, as.SourceBytes())
}

// fixed is a part of a Found that is not written.
type fixed struct{ io.ReaderAt }

// WriteAt implements quantize.Stored.
func (fixed) WriteAt([]byte, int64) (int, error) { return 0, errors.ErrUnsupported }

// warnOfRecoded names weights whose codes are not taken as they are.
func (p *Plan) warnOfRecoded() {
	var names []string
	var first rewrite.Weight
	for i, w := range p.Weights {
		if w.Given == nil || keepsCodes(p.weights[i]) || sameBlocks(w) {
			continue
		}
		if len(names) == 0 {
			first = w
		}
		names = append(names, w.Value.Path)
	}
	if len(names) == 0 {
		return
	}
	p.warn("%s with codes of %s %s quantized anew, which adds to the error: for example %s, from %s, block %d, to %s, %s",
		english.Plural(len(names), "weight", ""), first.Given.From, english.PluralWord(len(names), "is", "are"),
		msg.Quote(names[0]), first.Given.Format, first.Given.Block, first.Choice.Format, spec.BlockName(first.Choice.Block))
}
