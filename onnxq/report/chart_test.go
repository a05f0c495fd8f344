package report

import (
	"math"
	"testing"

	"onnxquant/spec"
)

func sized(names ...string) (r *Report) {
	r = &Report{Sizes: Sizes{Count: 3}}
	for i, name := range names {
		r.Outs = append(r.Outs, File{Path: name, Bytes: 1_000_000 + int64(i)*1000, Error: 0.1, OutputError: 0.1 / math.Pow(10, float64(i))})
	}
	for i, c := range spec.DefaultCandidates {
		r.Sizes.Candidates = append(r.Sizes.Candidates, SizePoint{c.String(), 900_000 + int64(i)*20_000, 0.12 / float64(i+1)})
		r.Sizes.Frontier = append(r.Sizes.Frontier, SizePoint{"", 900_000 + int64(i)*20_000, 0.1 / float64(i+1)})
	}
	return r
}

// Calibrated models are drawn by their outputs, beside the formats whose outputs are known.
func TestCalibratedChart(t *testing.T) {
	r := sized("plain.onnx", "data.onnx")
	if c := newChart(r); len(c.Marks) <= 2 || c.Frontier == "" {
		t.Errorf("%+v", c)
	}
	r.Outs[1].Calibrated = true
	c := newChart(r)
	if len(c.Marks) != 2 || c.Frontier != "" || c.Marks[1].Y <= c.Marks[0].Y {
		t.Errorf("%+v", c)
	}
	r.Outs = r.Outs[1:]
	if c := newChart(r); c != nil {
		t.Errorf("one model alone: %+v", c)
	}
	r.Sizes.ByOutputs = []SizePoint{{"int4:128", 900_000, 0.2}, {"int8:32", 1_200_000, 0.01}}
	if c := newChart(r); len(c.Marks) != 3 {
		t.Errorf("beside formats: %+v", c)
	}
	r.Outs[0].OutputError = 0 // not compared: by weights, as nothing else is known
	if c := newChart(r); c == nil || c.Frontier == "" {
		t.Errorf("%+v", c)
	}
}

// No label lies on another one or on the frontier, and a mark stands once.
func TestLabelsApart(t *testing.T) {
	const height = 11
	c := newChart(sized("out.onnx"))
	box := func(m mark) (left, right float64) {
		width := 6 * float64(len([]rune(m.Label)))
		if m.Anchor == "end" {
			return m.TextX - width, m.TextX
		}
		return m.TextX, m.TextX + width
	}
	labels := 0
	for i, m := range c.Marks {
		for _, o := range c.Marks[:i] {
			if math.Hypot(m.X-o.X, m.Y-o.Y) < 5 {
				t.Errorf("%s lies on %s", m.name, o.name)
			}
		}
		if m.Label == "" {
			continue
		}
		labels++
		left, right := box(m)
		if c.crossed(left, right, m.TextY-height/2, m.TextY+height/2) {
			t.Errorf("the line goes through %s", m.Label)
		}
		for _, o := range c.Marks[:i] {
			if l, r := box(o); o.Label != "" && math.Abs(o.TextY-m.TextY) < height && l < right && left < r {
				t.Errorf("%s lies on %s", m.Label, o.Label)
			}
		}
	}
	if labels < 3 {
		t.Errorf("%d labels", labels)
	}
}

func TestFlagsOf(t *testing.T) {
	for name, want := range map[string]string{
		"int4:32": "--format int4 --block 32", "int4:64:zp:uint8scale": "--format int4 --block 64 --zero-point --scale-type uint8",
		"int8:channel": "--format int8 --block -1", "q4_k": "--format q4_k", "float": "float", "model.onnx": "model.onnx",
	} {
		if got := flagsOf(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
