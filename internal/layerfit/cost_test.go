package layerfit

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"onnxquant/int4"
	"onnxquant/internal/operands"
	"onnxquant/internal/quantize"
	"onnxquant/spec"
)

func layer(k, n int64, input string) Layer {
	return Layer{&quantize.Weight{Outer: 1, K: k, Inner: n, Block: 32, Codec: int4.Codec{Bits: 4, Signed: true}, Algorithm: spec.Best}, []Product{{Operation: operands.Matrix{}, Input: input, Output: "y"}}, false}
}

func algorithmOf(best bool) spec.Algorithm {
	if best {
		return spec.Best
	}
	return spec.GPTQ
}

// Sums over inputs take no more memory than is reckoned with, however many rows there are.
func TestMemoryOfSums(t *testing.T) {
	const k, n, other = 24, 40, 56
	for _, best := range []bool{false, true} {
		c := &calibration{Options: Options{Algorithm: algorithmOf(best)}, layers: []Layer{layer(k, n, "x"), layer(k, other, "x")}}
		columns := []int{n, other}
		var targets []*target
		for _, n := range columns {
			targets = append(targets, newTarget(k, n, best))
		}
		m := newMoments(k, 1, targets)
		rng := rand.New(rand.NewPCG(1, 2))
		row := func(n int) []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = rng.Float32()
			}
			return x
		}
		for i := range 12 * m.most {
			y := make([][]float32, len(columns))
			for j, n := range columns {
				if best {
					y[j] = row(n)
				}
			}
			if err := m.add(t.Context(), 1, i%10 == 9, row(k), y); err != nil {
				t.Fatal(err)
			}
		}
		held := cap(m.h) + cap(m.x) + cap(m.held)
		for _, t := range m.targets {
			held += cap(t.g) + cap(t.y) + cap(t.held)
		}
		if bytes := c.bytes(&inputs{parts: 1, layers: []int{0, 1}}); 4*int64(held) > bytes {
			t.Errorf("best %v: %d bytes, reckoned with %d", best, 4*held, bytes)
		}
	}
}

// Groups share the memory: with less of it there are more, and each takes no more than half, as
// do the buffers that find codes.
func TestGroupsFitMemory(t *testing.T) {
	var layers []Layer
	for i := range 30 {
		layers = append(layers, layer(256, 512, string(rune('a'+i))))
	}
	var last Cost
	for _, memory := range []int64{64 << 20, 16 << 20, 8 << 20} {
		for _, best := range []bool{false, true} {
			c := Estimate(layers, Inputs{}, Options{Algorithm: algorithmOf(best), Memory: memory, Threads: 2})
			if c.Memory > memory || c.Groups == 0 || c.Time <= 0 {
				t.Errorf("%d MiB, best %v: %+v", memory>>20, best, c)
			}
			if best && last.Groups != 0 && c.Groups < last.Groups || best && c.Runs < 2 {
				t.Errorf("%d MiB: %+v, with more memory %+v", memory>>20, c, last)
			}
			if best {
				last = c
			}
		}
	}
	if c := Estimate(nil, Inputs{}, Options{Memory: 1 << 20}); c != (Cost{}) {
		t.Errorf("no layers: %+v", c)
	}
}

// counted are Activations of which only the number of samples is asked for.
type counted struct {
	Activations
	n int
}

func (c counted) Len() int { return c.n }

// The parts of an estimate are those of the values that a run of the model had.
func TestPartsOfEstimate(t *testing.T) {
	const k, n, samples, rows = 64, 96, 20, 50
	layers := []Layer{layer(k, n, "a"), layer(k, n, "a"), layer(k, n, "b")}
	shapes := map[string][]int64{"a": {rows, k}, "b": {2 * rows, k}, "cut": {rows, k}}
	m := &Measured{Run: time.Second, Open: time.Minute, Memory: 1 << 30, Apart: true, Shapes: shapes}
	cut := func(of []int) ([]string, bool) { return []string{"cut"}, true }
	for _, c := range []struct {
		algorithm spec.Algorithm
		rowsOf    float64 // products of a row of "a": half of H, and the targets of two layers
		targets   float64 // elements of these
		kept      int64   // values of all samples: between two groups of two models, or of one
		processes int     // while groups are calibrated
	}{
		{spec.GPTQ, k * k / 2, 0, 0, 1},
		{spec.Best, k*k/2 + 2*k*n, 2 * n, 2 * 4 * samples * rows * k, 2},
	} {
		o := Options{Algorithm: c.algorithm, Memory: 1 << 30, Threads: 2, Cut: cut}
		all := newCalibration(layers, counted{n: samples}, o)
		groups := all.groups()
		looking := float64(k * perInput * all.workers)
		if got, want := all.sums(groups[0][0], m), rows*(c.rowsOf/sumsShare+c.targets*perTarget+looking); math.Abs(got-want) > 1e-6*want {
			t.Errorf("%s: sums take %v products, want %v", c.algorithm, got, want)
		}
		if got := all.kept(groups, m); got != c.kept {
			t.Errorf("%s: %d bytes between parts, want %d", c.algorithm, got, c.kept)
		}
		if n := len(all.models()); n != c.processes {
			t.Errorf("%s: %d models side by side, want %d", c.algorithm, n, c.processes)
		}
		without, with := Estimate(layers, Inputs{Model: 1 << 10}, o), Estimate(layers, Inputs{counted{n: samples}, 1 << 10, m}, o)
		runs := time.Duration(with.Runs*samples) * m.Run
		if more := with.Time - without.Time; more < runs || more > runs+10*m.Open {
			t.Errorf("%s: the runs take %v more, want %v and the time to open models", c.algorithm, more, runs)
		}
		if with.CPU < with.Time || with.CPU > time.Duration(max(o.Threads, runtime.GOMAXPROCS(0)))*with.Time || with.Free <= 0 || with.Free > 1 {
			t.Errorf("%s: %v of processor time in %v, %g of the processors free", c.algorithm, with.CPU, with.Time, with.Free)
		}
		making := *m
		making.Making = 3
		made := Estimate(layers, Inputs{counted{n: samples}, 1 << 10, &making}, o)
		if more := made.Time - with.Time; more != 3*samples*m.Run {
			t.Errorf("%s: to make the samples takes %v", c.algorithm, more)
		}
		if with.Memory < 1<<30 || with.Memory > 2<<30 || without.Memory > 1<<30 || with.Disk != without.Disk+c.kept || !with.Measured || without.Measured {
			t.Errorf("%s: %+v, without the runs %+v", c.algorithm, with, without)
		}
	}
}

// A single large layer has copies of its Hessian where there is memory for one layer.
func TestCopiesOfHessians(t *testing.T) {
	const k = 14336
	for _, c := range []struct {
		alone          int64
		copies, packed bool
	}{{0, false, false}, {4 << 30, true, false}, {10 << 30, true, true}} {
		of := &calibration{Options: Options{Memory: 2 << 30, Alone: c.alone}}
		if of.copies(k) != c.copies || of.packs(k) != c.packed {
			t.Errorf("%d bytes for one layer: a copy %v, packed %v", c.alone, of.copies(k), of.packs(k))
		}
	}
}

// A part of a model takes a part of its memory; what runs in this process has its own.
func TestMemoryOfProcesses(t *testing.T) {
	const all = 1 << 30
	for _, c := range []struct {
		apart  bool
		models int
		part   float64
		want   int64
	}{
		{false, 3, 1, all},
		{true, 3, 1, 3 * all},
		{true, 2, 0, 2 * emptyProcess},
		{true, 2, 0.5, 2 * (emptyProcess + all/2)},
	} {
		got := new(calibration).processes(&Measured{Memory: all, Apart: c.apart}, c.models, c.part)
		if got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
