package tune

import (
	"context"
	"math"
	"os"
	"testing"

	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
)

// counted measures 1, 2, …, and counts its measurements. The second one cannot be measured.
type counted struct {
	analyze.Damage
	n int
}

func (c *counted) Of(_ context.Context, _ *onnxq.Model, _ onnxq.Options, weights []string) (found []float64, err error) {
	for range weights {
		if c.n++; c.n == 2 {
			found = append(found, math.NaN())
		} else {
			found = append(found, float64(c.n))
		}
	}
	return found, nil
}

func TestWeighed(t *testing.T) {
	folder := t.TempDir()
	open := func(key string) (*weighed, *counted) {
		w, err := openWeighed(folder, key)
		if err != nil {
			t.Fatal(err)
		}
		c := &counted{}
		w.Damage = c
		return w, c
	}
	of := func(w *weighed, weights ...string) []float64 {
		found, err := w.Of(t.Context(), nil, onnxq.Options{}, weights)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	w, _ := open("a")
	w.samples = 5
	of(w, "x", "y", "z")
	f, err := os.OpenFile(w.path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"key": "a", "fo`) // a crash cut a line
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	w, c := open("a")
	if got := of(w, "z", "y"); c.n != 0 || w.samples != 5 || got[0] != 3 || !math.IsNaN(got[1]) {
		t.Errorf("%v after %d measurements, %d samples", got, c.n, w.samples)
	}
	if got := of(w, "other"); c.n != 1 || got[0] != 1 {
		t.Errorf("%v after %d measurements", got, c.n)
	}
	w, c = open("b")
	if of(w, "x"); c.n != 1 || w.samples != 0 {
		t.Errorf("%d measurements with another key, %d samples", c.n, w.samples)
	}
}
