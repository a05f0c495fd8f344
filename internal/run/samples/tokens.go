package samples

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"onnxquant/internal/regularfile"
	"onnxquant/internal/run/execute"
)

// tokens is a .jsonl file: each line has a list of ids, or an object with one.
type tokens struct {
	model *model
	path  string
	fixed int64 // length of the model's ids, or 0
}

func newTokens(m *model, path string) (*tokens, error) {
	if m.ids < 0 {
		return nil, fmt.Errorf("%s: the model has no input of token ids; give its inputs as arrays (.npz)", path)
	}
	t := &tokens{model: m, path: path}
	if dims := m.inputs[m.ids].GetType().GetTensorType().GetShape().GetDim(); len(dims) > 0 {
		t.fixed, _ = execute.FixedSize(dims[len(dims)-1])
	}
	return t, nil
}

// count implements source.
func (t *tokens) count(limit int) (n int, err error) {
	err = t.each(func([]*execute.Tensor) error {
		if n++; n == limit {
			return errEnough
		}
		return nil
	})
	if err == errEnough {
		err = nil
	}
	if err == nil && n == 0 && t.fixed > 0 {
		err = fmt.Errorf("%s: no line has %d ids, which the model reads at a time", t.path, t.fixed)
	}
	return n, err
}

// each implements source. For a model of a fixed length, each line is cut into pieces of that length.
func (t *tokens) each(yield func([]*execute.Tensor) error) error {
	return t.lines(func(_ int, _ []byte, ids []int64) error {
		for n := range t.pieces(len(ids)) {
			length := len(ids)
			if t.fixed > 0 {
				length = int(t.fixed)
			}
			inputs, err := t.model.sequence(ids[n*length : (n+1)*length])
			if err == nil {
				err = yield(inputs)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// pieces is the number of samples of a line with n ids.
func (t *tokens) pieces(n int) int {
	if t.fixed > 0 {
		return n / int(t.fixed)
	}
	return min(n, 1)
}

// lines yields each line, with its number and its ids. Empty lines are left out.
func (t *tokens) lines(yield func(number int, line []byte, ids []int64) error) error {
	f, _, err := regularfile.Open(t.path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for number := 1; lines.Scan(); number++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		ids, err := t.ids(line)
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", t.path, number, err)
		}
		if err := yield(number, line, ids); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", t.path, err)
	}
	return nil
}

const maxLine = 64 << 20 // bytes

// ids reads a line.
func (t *tokens) ids(line []byte) ([]int64, error) {
	var ids []int64
	list := json.RawMessage(line)
	if line[0] == '{' {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(line, &object); err != nil {
			return nil, err
		}
		names := []string{t.model.inputs[t.model.ids].GetName(), "input_ids", "ids", "tokens"}
		i := slices.IndexFunc(names, func(name string) bool { return object[name] != nil })
		if i < 0 {
			return nil, fmt.Errorf("the object has no list called %q", names[0])
		}
		list = object[names[i]]
	}
	dec := json.NewDecoder(bytes.NewReader(list))
	if err := dec.Decode(&ids); err != nil {
		return nil, fmt.Errorf("not a list of token ids: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than a list of token ids")
	}
	for i, id := range ids {
		if id < 0 || id >= t.model.vocabulary {
			return nil, fmt.Errorf("position %d: %w", i, t.model.wrongID(id))
		}
	}
	return ids, nil
}

// sequence makes inputs with some ids; all other inputs are missing.
func (m *model) sequence(ids []int64) ([]*execute.Tensor, error) {
	inputs := make([]*execute.Tensor, len(m.inputs))
	var err error
	inputs[m.ids], err = m.batch([][]int64{ids})
	return inputs, err
}

// batch makes the input of ids from sequences of the same length; from one, if the input has
// no axis for more.
func (m *model) batch(ids [][]int64) (*execute.Tensor, error) {
	info := m.inputs[m.ids]
	dims := []int64{int64(len(ids)), int64(len(ids[0]))}
	t, err := execute.FromInt64s(typeOf(info), dims[2-min(rank(info), 2):], slices.Concat(ids...))
	if err == nil {
		t.Name = info.GetName()
	}
	return t, err
}
