package tune

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"onnxquant/internal/run/execute"
)

// classesOf is the number of elements along the last axis.
func classesOf(t *execute.Tensor) int {
	if len(t.Dims) == 0 {
		return 1
	}
	return int(t.Dims[len(t.Dims)-1])
}

// classified returns the first output of a model that has a row of classes for each label.
func (s *share) classified() (int, error) {
	if len(s.want) > 0 {
		for k, t := range s.want[0] {
			if n := classesOf(t); n >= 2 && t.Len() == n*len(s.labels[0]) {
				return k, nil
			}
		}
	}
	return 0, errors.New("no output has a row of two or more classes for each label; --score takes a program for other tasks")
}

// accuracy is the share of rows of output k, in percent, whose largest element is that of the label.
func (s *share) accuracy(got [][]*execute.Tensor, k int) (float64, error) {
	rows, right := 0, 0
	for i, outputs := range got {
		n, x := classesOf(outputs[k]), outputs[k].Float64s()
		if len(x) != n*len(s.labels[i]) || n == 0 {
			return 0, fmt.Errorf("an output of shape %v for %d labels", outputs[k].Dims, len(s.labels[i]))
		}
		for j, label := range s.labels[i] {
			row := x[j*n : (j+1)*n]
			if label < 0 || label >= int64(n) {
				return 0, fmt.Errorf("label %d is none of %d classes", label, n)
			}
			if rows++; int64(slices.Index(row, slices.Max(row))) == label {
				right++
			}
		}
	}
	return 100 * float64(right) / float64(rows), nil
}

// commonest is the share of rows, in percent, that have the most frequent label.
func (s *share) commonest() float64 {
	rows, most := map[int64]int{}, 0
	for _, list := range s.labels {
		for _, label := range list {
			rows[label]++
			most = max(most, rows[label])
		}
	}
	return 100 * float64(most) / float64(max(s.labelled(), 1))
}

// checkLabels refuses labels that the float model hits less often than chance does, and warns if one class for all rows does as well:
// then the accuracy says little about any model.
func (s *search) checkLabels() error {
	score, of := *s.result.Float.Score, &s.outputs.choice
	n := classesOf(of.want[0][s.outputs.output])
	if chance := 100 / float64(n); score < chance {
		return fmt.Errorf("labels: the class of %s is the label in %.3g %% of %d rows, by chance it would be in %.3g %%: want the number of the class of each row, from 0, in the order of the samples", s.result.Input, score, of.labelled(), chance)
	}
	if most := of.commonest(); score <= most {
		s.warn(fmt.Sprintf("the accuracy of %s is %.3g %%; one class for all rows has %.3g %%: are the labels right?", s.result.Input, score, most))
	}
	return nil
}

// labelled is the number of rows with a label.
func (s *share) labelled() (rows int) {
	for _, l := range s.labels {
		rows += len(l)
	}
	return rows
}

// noLabels are the labels of data without any.
func noLabels(yield func([]int64, error) bool) {
	for yield(nil, nil) {
	}
}

// labels are the labels of all samples, in order.
func (o *Options) labels(of func(name string) iter.Seq2[[]int64, error]) iter.Seq2[[]int64, error] {
	if o.Labels == "" {
		return noLabels
	}
	return of(o.Labels)
}
