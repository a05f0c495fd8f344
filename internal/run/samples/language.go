package samples

import (
	"errors"
	"fmt"
	"strings"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/run/execute"
)

// Language is a model that reads token ids and computes, for each id, a logit for every token of the
// vocabulary.
type Language struct {
	Vocabulary int64  // ids are below it
	Logits     string // the output
	Length     int64  // the number of ids that the model fixes, or 0
	Single     bool   // one sequence at a time

	// Past and Present are the inputs and outputs of the key-value cache: the present of a run is the
	// past of the next. Both are empty if the model has no cache, or none that grows.
	Past, Present []string

	model *model
}

// ErrLanguage is wrapped by errors about models that are no language models.
var ErrLanguage = errors.New("only causal language models can make samples themselves; give files of data, such as an .npz file with an array for each input")

// NewLanguage recognizes a language model by its inputs and outputs. It may still be one that
// sees the ids that follow.
func NewLanguage(m *modelfile.Model) (*Language, error) {
	l := &Language{model: newModel(m)}
	if l.model.ids < 0 || l.model.vocabulary == unknown {
		return nil, l.noIDs()
	}
	l.Vocabulary = l.model.vocabulary
	ids := l.model.inputs[l.model.ids]
	dims := ids.GetType().GetTensorType().GetShape().GetDim()
	if len(dims) > 0 {
		l.Length, _ = execute.FixedSize(dims[len(dims)-1])
		_, l.Single = execute.FixedSize(dims[0])
		l.Single = l.Single || len(dims) == 1
	}
	for _, o := range m.Proto.GetGraph().GetOutput() {
		dims := o.GetType().GetTensorType().GetShape().GetDim()
		switch name := strings.ToLower(o.GetName()); {
		case typeOf(o).Float() && len(dims) == rank(ids)+1 && l.Logits == "":
			if n, fixed := execute.FixedSize(dims[len(dims)-1]); fixed && n == l.Vocabulary || !fixed && strings.Contains(name, "logits") {
				l.Logits = o.GetName()
			}
		case strings.Contains(name, "present"):
			l.Present = append(l.Present, o.GetName())
		}
	}
	if l.Logits == "" {
		return nil, fmt.Errorf("%w (no output has a number for each of the %d tokens)", ErrLanguage, l.Vocabulary)
	}
	grows := true
	for _, info := range l.model.inputs {
		if !strings.Contains(strings.ToLower(info.GetName()), "past") || !typeOf(info).Float() {
			continue
		}
		l.Past = append(l.Past, info.GetName())
		if dims := info.GetType().GetTensorType().GetShape().GetDim(); len(dims) > 2 {
			_, fixed := execute.FixedSize(dims[len(dims)-2])
			grows = grows && !fixed
		}
	}
	if len(l.Past) != len(l.Present) || !grows {
		l.Past, l.Present = nil, nil
	}
	return l, l.check()
}

// IDs is the name of the input with token ids.
func (l *Language) IDs() string { return l.model.inputs[l.model.ids].GetName() }

// noIDs explains why the model does not read token ids.
func (l *Language) noIDs() error {
	if l.model.ids >= 0 {
		return fmt.Errorf("%w (how many tokens input %s may have is not known)", ErrLanguage, describe(l.model.inputs[l.model.ids]))
	}
	return fmt.Errorf("%w (no input has token ids)", ErrLanguage)
}

// check returns an error if an input does not follow from the ids.
func (l *Language) check() error {
	_, err := l.Inputs([][]int64{make([]int64, max(l.Length, 1))}, nil)
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrLanguage, err)
	}
	return nil
}

// Inputs makes the inputs for sequences of ids, all of the same length. past has the values of
// Present, by the names of Past, of the ids before them.
func (l *Language) Inputs(ids [][]int64, past []*execute.Tensor) ([]*execute.Tensor, error) {
	inputs := make([]*execute.Tensor, len(l.model.inputs))
	t, err := l.model.batch(ids)
	if err != nil {
		return nil, err
	}
	inputs[l.model.ids] = t
	before := int64(0)
	for _, p := range past {
		inputs[l.model.index(p.Name)] = p
		before = p.Dims[len(p.Dims)-2] // [batch, heads, ids, size]
	}
	return inputs, l.model.complete(inputs, before)
}

// Samples makes samples of sequences of ids.
func (l *Language) Samples(ids [][]int64) *Samples {
	return &Samples{model: l.model, sources: []source{&sequences{l.model, ids}}, n: len(ids)}
}

// sequences are samples in memory.
type sequences struct {
	model *model
	ids   [][]int64
}

// count implements source.
func (s *sequences) count(int) (int, error) { return len(s.ids), nil }

// each implements source.
func (s *sequences) each(yield func([]*execute.Tensor) error) error {
	for _, ids := range s.ids {
		inputs, err := s.model.sequence(ids)
		if err == nil {
			err = yield(inputs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
