package samples

import (
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
)

func TestLabels(t *testing.T) {
	lines := "{\"ids\": [1, 2, 3], \"label\": 7}\n\n{\"ids\": [4, 5], \"label\": [8, 9]}\n"
	for _, test := range []struct {
		name   string
		first  any // axis of the input
		labels []byte
		want   [][]int64
		wanted string // error
	}{
		{"a row each", "n", npyFile("<i8", false, 6), [][]int64{{0}, {1}, {2}, {3}, {4}, {5}}, ""},
		{"two rows each", 2, npyFile("<i8", false, 6), [][]int64{{0, 1}, {2, 3}, {4, 5}}, ""},
		{"no labels", "n", nil, nil, "no array of labels"},
		{"too few", "n", npyFile("<i8", false, 5), nil, "as many for each of 6 samples"},
		{"floats", "n", npyFile("<f4", false, 6), nil, "want integers"},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			write(t, folder, "x.npy", npyFile("<f4", false, 6, 4))
			if test.labels != nil {
				write(t, folder, "label.npy", test.labels)
			}
			s, err := Open(withInputs(t, input("x", dtype.Float32, test.first, 4)), []string{folder}, 0)
			if err != nil {
				t.Fatal(err)
			}
			got, err := labelsOf(s)
			if test.wanted != "" {
				if err == nil || !strings.Contains(err.Error(), test.wanted) {
					t.Errorf("%v, want %s", err, test.wanted)
				}
			} else if err != nil || !slices.EqualFunc(got, test.want, slices.Equal) {
				t.Errorf("%v, %v, want %v", got, err, test.want)
			}
		})
	}
	s, err := Open(withInputs(t, input("ids", dtype.Int64, "n", "t")), []string{write(t, t.TempDir(), "a.jsonl", []byte(lines))}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := labelsOf(s); err != nil || !slices.EqualFunc(got, [][]int64{{7}, {8, 9}}, slices.Equal) {
		t.Errorf("%v, %v", got, err)
	}
}

func labelsOf(s *Samples) (all [][]int64, err error) {
	for classes, err := range s.Labels("label") {
		if err != nil {
			return nil, err
		}
		all = append(all, classes)
	}
	return all, nil
}
