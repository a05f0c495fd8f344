package verify

import (
	"fmt"
	"path/filepath"
	"slices"

	"onnxquant/formats/errstat"
	"onnxquant/internal/balance"
	"onnxquant/internal/convert"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/work"
	"onnxquant/onnxq"
	"onnxquant/onnxq/compare"
)

// writeFolded writes the float model, folded and with the factors of channels as OUT. Its outputs prove that this changes
// nothing.
func (v *verifier) writeFolded(float, out *onnxq.Model, match *compare.Match, folder string) (m *onnxq.Model, err error) {
	m = float
	if match.Folded > 0 {
		if m, err = float.Folded(); err != nil {
			return nil, err
		}
	}
	if match.Balanced > 0 {
		if m, err = m.Balanced(balance.Between(float.Graph().File.Proto, out.Graph().File.Proto)); err != nil {
			return nil, err
		}
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
		v.fail(CheckStructure, "IN, %s as OUT is, does not compute what IN does: SQNR %.1f dB", v.changed(), x.Folded)
		return
	}
	text := "the same"
	if x.Folded < errstat.Exact {
		text = fmt.Sprintf("the same up to rounding (SQNR %.0f dB)", x.Folded)
	}
	v.report.Structure.Notes = append(v.report.Structure.Notes, v.changed()+", IN computes "+text)
}

// changed says what was done to IN before it was compared.
func (v *verifier) changed() string {
	switch s := v.report.Structure; {
	case s.Balanced == 0:
		return "folded"
	case s.Folded == 0:
		return "balanced"
	}
	return "folded and balanced"
}
