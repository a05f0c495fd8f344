package verify

import (
	"fmt"
	"path/filepath"
	"slices"

	"onnxquant/formats/errstat"
	"onnxquant/internal/convert"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/work"
	"onnxquant/onnxq"
)

// writeFolded writes the float model, folded as OUT is. Its outputs prove that folding changes nothing.
func (v *verifier) writeFolded(float *onnxq.Model, folder string) (*onnxq.Model, error) {
	m, err := float.Folded()
	if err != nil {
		return nil, err
	}
	v.folded = filepath.Join(folder, "folded.onnx")
	return m, convert.WriteFloat(v.ctx, m.Graph().File, v.folded, 0, work.DefaultMemory)
}

// compareFolded compares the outputs of the folded model with those of IN.
func (v *verifier) compareFolded(want, got [][]*execute.Tensor) error {
	list, err := execute.Compare(want, got)
	least := float64(errstat.Exact)
	for _, o := range list {
		if o.Elements > 0 {
			least = min(least, o.SQNR)
		}
		if o.Broken > 0 {
			least = -errstat.Exact
		}
	}
	v.report.Execution.Folded = least
	return err
}

// The least SQNR in dB of the outputs of the folded model. Rounding of floats leaves far more.
const (
	foldedSQNR     = 50.0
	foldedHalfSQNR = 25.0 // if outputs have 16 bits
)

// judgeFolded fails a folded model that does not compute what IN does.
func (v *verifier) judgeFolded() {
	x := &v.report.Execution
	if v.folded == "" || !x.Compared {
		return
	}
	least := foldedSQNR
	if slices.ContainsFunc(x.Outputs, func(o Output) bool { return o.DType == "FLOAT16" || o.DType == "BFLOAT16" }) {
		least = foldedHalfSQNR
	}
	if x.Folded < least {
		v.fail(CheckStructure, "IN, folded as OUT is, does not compute what IN does: SQNR %.1f dB", x.Folded)
		return
	}
	text := "the same"
	if x.Folded < errstat.Exact {
		text = fmt.Sprintf("the same up to rounding (SQNR %.0f dB)", x.Folded)
	}
	v.report.Structure.Notes = append(v.report.Structure.Notes, "folded, IN computes "+text)
}
