package layerfit

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/linalg"
	"onnxquant/internal/work"
	"onnxquant/spec"
)

var (
	layerK       = flag.Int("layer.k", 1024, "elements of a column in BenchmarkLayer")
	layerN       = flag.Int("layer.n", 1024, "columns")
	layerRows    = flag.Int("layer.rows", 0, "rows of inputs; 0: four for each element of a column")
	layerBlock   = flag.Int("layer.block", 32, "elements of a block")
	layerThreads = flag.Int("layer.threads", 1, "workers")
	layerMemory  = flag.Int64("layer.memory", 8<<30, "bytes")
)

// BenchmarkLayer measures the processor time for the codes of a layer by gptq and by best, in turn, on the same inputs: sums,
// the factor, and codes. It also tells the errors on held-out rows, and the times of a layer of K columns and 4·K rows if these grow
// with columns and rows. docs/calibration.md adds the times up to models.
func BenchmarkLayer(b *testing.B) {
	k, n, rows := *layerK, *layerN, *layerRows
	if rows == 0 {
		rows = 4 * k
	}
	for b.Loop() {
		in := newLayerInputs(k, n, 1)
		gptq, best := newLayerCost(b, spec.GPTQ, in), newLayerCost(b, spec.Best, in)
		for batch, added := 0, 0; added < rows; batch++ {
			in.next()
			hold := batch%heldOutEvery == 0
			gptq.observe(b, in, hold)
			best.observe(b, in, hold)
			if !hold {
				added += layerBatch
			}
		}
		gptq.solve(b)
		best.solve(b)
		b.Logf("K %d, %d columns, %d rows, blocks of %d, %d workers", k, n, rows, *layerBlock, *layerThreads)
		b.Log("gptq " + gptq.String())
		b.Log("best " + best.String())
		b.Logf("best takes %.2f times as long; gptq's codes are better in %d of %d columns", best.all()/gptq.all(), best.errors.simpler, best.errors.columns)
		wide, long := float64(k)/float64(n), 4*float64(k)/float64(rows)
		simple := long*gptq.sums + gptq.factor + wide*gptq.codes
		all := long*(gptq.sums+wide*(best.sums-gptq.sums)) + best.factor + wide*best.codes
		b.Logf("by rows and columns, a layer of %d columns and %d rows: gptq %.1f s, best %.1f s, %.2f times", k, 4*k, simple, all, all/simple)
	}
}

// layerBatch is how many rows of inputs are made at a time.
const layerBatch = 512

// layerInputs makes rows of inputs like those of a language model: correlated, of channels with different magnitudes, a few of them
// twenty times as large. Errors of earlier layers are in the same directions.
type layerInputs struct {
	k, n, rank    int
	rng           *rand.Rand
	directions    []float32 // rank rows of k
	through       []float32 // directions times the weights, rank rows of n
	scale         []float64 // of a channel
	weights       []float32
	white         float64
	x, y          []float32 // layerBatch rows
	parts, errors []float32 // of directions, in a row
}

func newLayerInputs(k, n int, seed uint64) *layerInputs {
	in := &layerInputs{k: k, n: n, rank: k / 4, rng: rand.New(rand.NewPCG(seed, 2)), scale: make([]float64, k)}
	room := func(size int) []float32 { return make([]float32, size) }
	in.directions, in.through, in.weights = room(in.rank*k), room(in.rank*n), room(k*n)
	in.x, in.y, in.parts, in.errors = room(layerBatch*k), room(layerBatch*n), room(layerBatch*in.rank), room(layerBatch*in.rank)
	for j := range in.scale {
		in.scale[j] = math.Exp(in.rng.NormFloat64() / 2)
		if in.rng.IntN(250) == 0 {
			in.scale[j] *= 20
		}
	}
	for i := range in.rank {
		size := math.Pow(float64(i+1), -0.45)
		in.white += 0.15 * size * size
		for j := range k {
			in.directions[i*k+j] = float32(in.rng.NormFloat64() * size * in.scale[j])
		}
	}
	in.white = math.Sqrt(in.white)
	for i := range in.weights {
		in.weights[i] = float32(in.rng.NormFloat64())
	}
	new(linalg.Multiplier).Add(linalg.Of(in.through, in.rank, n), 1, linalg.Of(in.directions, in.rank, k), linalg.Of(in.weights, k, n))
	return in
}

// next makes rows x, and y, what their products with the weights lack.
func (in *layerInputs) next() {
	const wrong = 0.05
	for i := range in.parts {
		in.errors[i] = float32(in.rng.NormFloat64() * wrong)
		in.parts[i] = float32(in.rng.NormFloat64()) - in.errors[i]
	}
	for i := range in.x {
		in.x[i] = float32(in.rng.NormFloat64() * in.white * in.scale[i%in.k])
	}
	clear(in.y)
	var m linalg.Multiplier
	m.Add(linalg.Of(in.x, layerBatch, in.k), 1, linalg.Of(in.parts, layerBatch, in.rank), linalg.Of(in.directions, in.rank, in.k))
	m.Add(linalg.Of(in.y, layerBatch, in.n), 1, linalg.Of(in.errors, layerBatch, in.rank), linalg.Of(in.through, in.rank, in.n))
}

func (in *layerInputs) ReadRows(dst []byte, off, rows, n, stride int64) error {
	for i := range rows {
		at := (off + i*stride) / 4
		dtype.Float32.Encode(dst[i*n:][:n], in.weights[at:][:n/4])
	}
	return nil
}

// layerCost is what the codes of a layer take, in seconds of processor time.
type layerCost struct {
	c                   *calibration
	layer               Layer
	moments             *moments
	sums, factor, codes float64
	errors              sums
}

func newLayerCost(tb testing.TB, algorithm spec.Algorithm, in *layerInputs) *layerCost {
	l := &layerCost{layer: layer(int64(in.k), int64(in.n), "x")}
	l.layer.Weight.DType, l.layer.Weight.Source, l.layer.Weight.Block = dtype.Float32, in, int64(*layerBlock)
	l.c = newCalibration([]Layer{l.layer}, nil, Options{Algorithm: algorithm, Threads: *layerThreads, Memory: *layerMemory})
	s, _, err := openStore(tb.TempDir()+"/state", "key", false)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.close(false) })
	l.c.Result = newResult(1, s)
	l.moments = newMoments(in.k, 1, []*target{newTarget(in.k, in.n, l.c.targets(l.layer))})
	return l
}

// add adds a row of inputs, or holds it out.
func (l *layerCost) add(tb testing.TB, in *layerInputs, r int, hold bool) error {
	var y [1][]float32
	if l.moments.targets[0].g != nil {
		y[0] = in.y[r*in.n:][:in.n]
	}
	return l.moments.add(tb.Context(), *layerThreads, hold, in.x[r*in.k:][:in.k], y[:])
}

// timed adds the processor time that something takes.
func timed(to *float64, do func() error, b *testing.B) {
	start := work.Spent()
	if err := do(); err != nil {
		b.Fatal(err)
	}
	*to += (work.Spent() - start).Seconds()
}

func (l *layerCost) observe(b *testing.B, in *layerInputs, hold bool) {
	timed(&l.sums, func() error {
		for r := range layerBatch {
			if err := l.add(b, in, r, hold); err != nil {
				return err
			}
		}
		return nil
	}, b)
}

func (l *layerCost) solve(b *testing.B) {
	var s *solver
	timed(&l.factor, func() (err error) {
		s, err = newSolver(b.Context(), l.c, l.moments)
		return err
	}, b)
	found := l.c.store.add(l.layer.Weight)
	timed(&l.codes, func() (err error) {
		l.errors, err = s.panels(b.Context(), l.layer.Weight, 0, l.moments.targets[0], found)
		return err
	}, b)
	l.moments = nil
}

func (l *layerCost) all() float64 { return l.sums + l.factor + l.codes }

func (l *layerCost) String() string {
	return fmt.Sprintf("%.2f s: sums %.2f, factor %.2f, codes %.2f; squared error on held-out rows %.4f of mse's",
		l.all(), l.sums, l.factor, l.codes, l.errors.found/l.errors.mse)
}
