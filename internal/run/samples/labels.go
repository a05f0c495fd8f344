package samples

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
)

// labelled is a source that may have labels beside its samples.
type labelled interface {
	// labels yields the classes of each sample in turn.
	labels(name string, yield func([]int64) error) error
}

// Labels yields the true classes of the rows of each sample, in the order of All. They are integers: an array called name
// beside those of the inputs, whose rows are divided as theirs are, or a field of a line of .jsonl.
func (s *Samples) Labels(name string) iter.Seq2[[]int64, error] {
	return func(yield func([]int64, error) bool) {
		left := s.n
		err := error(nil)
		for _, from := range s.sources {
			l, ok := from.(labelled)
			if !ok {
				err = fmt.Errorf("images and sound have no labels %q; labels need arrays (.npz)", name)
			} else {
				err = l.labels(name, func(classes []int64) error {
					if left--; !yield(classes, nil) || left == 0 {
						return errEnough
					}
					return nil
				})
			}
			if err != nil {
				break
			}
		}
		if err != nil && err != errEnough {
			yield(nil, err)
		}
	}
}

// labels implements labelled. The rows of the array are as many for each sample.
func (a *arrays) labels(name string, yield func([]int64) error) error {
	var found *array
	for _, x := range a.others {
		base := strings.TrimSuffix(filepath.Base(x.path), filepath.Ext(x.path))
		if x.name != name && base != name {
			continue
		}
		if found != nil {
			return fmt.Errorf("%s and %s both have labels %q", found.path, x.path, name)
		}
		found = x
	}
	if found == nil {
		return fmt.Errorf("%s: there is no array of labels %q", a.path, name)
	}
	t, err := found.read()
	if err != nil {
		return err
	}
	if !found.typ.Integer() || t.Len()%a.n != 0 || t.Len() == 0 {
		return fmt.Errorf("%s: labels are %v %v; want integers, as many for each of %d samples", found.location(), found.typ, found.dims, a.n)
	}
	if t, err = converted(t, dtype.Int64); err != nil {
		return fmt.Errorf("%s: %w", found.location(), err)
	}
	classes := t.Int64s()
	for rows := len(classes) / a.n; len(classes) > 0; classes = classes[rows:] {
		if err := yield(classes[:rows]); err != nil {
			return err
		}
	}
	return nil
}

// read reads a whole array.
func (x *array) read() (*execute.Tensor, error) {
	r := &reader{column: []*array{{path: x.path, member: x.member, name: x.name, typ: x.typ, dims: x.dims, shape: x.dims, count: 1}}, typ: x.typ}
	defer r.close()
	return r.next()
}

// labels implements labelled. All pieces of a line have its label.
func (t *tokens) labels(name string, yield func([]int64) error) error {
	return t.lines(func(number int, line []byte, ids []int64) error {
		classes, err := labelOf(line, name)
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", t.path, number, err)
		}
		for range t.pieces(len(ids)) {
			if err := yield(classes); err != nil {
				return err
			}
		}
		return nil
	})
}

// labelOf reads the field of an object: an integer, or a list of them.
func labelOf(line []byte, name string) (classes []int64, err error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(line, &object); err != nil || object[name] == nil {
		return nil, fmt.Errorf("there is no label %q", name)
	}
	var one int64
	if json.Unmarshal(object[name], &one) == nil {
		return []int64{one}, nil
	}
	if json.Unmarshal(object[name], &classes) != nil || len(classes) == 0 {
		return nil, errors.New("a label is an integer, or a list of them")
	}
	return classes, nil
}
