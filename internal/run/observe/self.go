package observe

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/samples"
)

// SelfOptions say which samples a model makes.
type SelfOptions struct {
	N        int    // sequences; 0: samples.Default
	Length   int    // ids of a sequence; 0: DefaultLength. Ignored if the model fixes it.
	Seed     uint64 // of the random numbers
	Progress func(done, total int)
}

// DefaultLength is the length of sequences that models make.
const DefaultLength = 128

// Self lets a causal language model generate samples. A sample begins with a random id and continues
// with ids drawn by the model's probabilities (temperature 1). The same seed makes the same samples.
// If the model fails with this batch size, half the size is tried.
func (e *Engine) Self(ctx context.Context, path string, opts SelfOptions) (*samples.Samples, error) {
	w, err := e.newWriter(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	defer w.session.Close()
	if err := w.causal(); err != nil {
		return nil, err
	}
	var all [][]int64
	for len(all) < w.opts.N {
		ids, err := w.batch(ctx, len(all), min(w.together(), w.opts.N-len(all)))
		if err != nil {
			return nil, err
		}
		all = append(all, ids...)
	}
	return w.model.Samples(all), nil
}

// Making is what Self takes, roughly.
type Making struct {
	Runs   float64 // how often the model could run on all samples in the time that it runs
	Handed float64 // numbers that its runs return
	Drawn  float64 // numbers that ids are drawn by
}

// Suppose returns samples of random ids, in place of those of Self, at once. It is for estimates.
func (e *Engine) Suppose(ctx context.Context, path string, opts SelfOptions) (s *samples.Samples, m Making, err error) {
	w, err := e.newWriter(ctx, path, opts)
	if err != nil {
		return nil, m, err
	}
	defer w.session.Close()
	var all [][]int64
	for range w.opts.N {
		all = append(all, w.noise()...)
	}
	return w.model.Samples(all), w.making(), nil
}

// making estimates what the samples take.
func (w *writer) making() (m Making) {
	length := float64(w.opts.Length)
	ids := 1.0 // that a run reads for each one that it finds
	switch {
	case len(w.model.Past) > 0:
		m.Runs = 3 // an id at a time: fewer products of larger operands take less time
	case w.model.Length > 0:
		m.Runs, ids = length, length
	default:
		ids = min(1.5*memory, length/2)
		m.Runs = ids
	}
	m.Drawn = float64(w.opts.N) * (length - 1) * float64(w.model.Vocabulary)
	m.Handed = m.Drawn * ids
	return m
}

// newWriter opens a language model, and finds a length that it can read.
func (e *Engine) newWriter(ctx context.Context, path string, opts SelfOptions) (*writer, error) {
	m, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	l, err := samples.NewLanguage(m)
	m.Close()
	if err != nil {
		return nil, err
	}
	if opts.N == 0 {
		opts.N = samples.Default
	}
	if opts.Length == 0 {
		opts.Length = DefaultLength
	}
	if l.Length > 0 {
		opts.Length = int(l.Length)
	}
	s, err := e.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	w := &writer{model: l, session: s, opts: opts}
	if err := w.fit(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return w, nil
}

// writer lets a model write.
type writer struct {
	model   *samples.Language
	session execute.Session
	opts    SelfOptions
}

// random returns the numbers of a sequence. Its first one makes the first id.
func (w *writer) random(sequence int) *rand.Rand {
	return rand.New(rand.NewPCG(w.opts.Seed, uint64(sequence)))
}

// together returns how many sequences are made at a time.
func (w *writer) together() int {
	const most, bytes = 32, 64 << 20 // bytes of logits
	if w.model.Single {
		return 1
	}
	n := 4 * w.model.Vocabulary
	if len(w.model.Past) == 0 {
		n *= int64(w.opts.Length)
	}
	return int(min(max(bytes/n, 1), most))
}

// fit finds a length that the model can read.
func (w *writer) fit(ctx context.Context) error {
	for {
		_, err := w.logits(w.noise())
		if err == nil || context.Cause(ctx) != nil || w.model.Length > 0 || w.opts.Length < 16 {
			return err
		}
		w.opts.Length /= 2
	}
}

// noise returns a sequence of random ids.
func (w *writer) noise() [][]int64 {
	rng := w.random(0)
	ids := make([]int64, w.opts.Length)
	for i := range ids {
		ids[i] = rng.Int64N(w.model.Vocabulary)
	}
	return [][]int64{ids}
}

// causal checks that the results for an id do not depend on the ids after it.
func (w *writer) causal() error {
	ids := w.noise()
	before, err := w.logits(ids)
	if err != nil {
		return err
	}
	last := len(ids[0]) - 1
	ids[0][last] = (ids[0][last] + 1) % w.model.Vocabulary
	after, err := w.logits(ids)
	if err != nil {
		return err
	}
	a, b := before.Float32s(), after.Float32s()
	for i := range last * int(w.model.Vocabulary) {
		if d := math.Abs(float64(a[i] - b[i])); !(d <= 1e-2*(1+math.Abs(float64(a[i])))) {
			return fmt.Errorf("%w (this model sees the ids that follow, or computes NaN)", samples.ErrLanguage)
		}
	}
	return nil
}

// logits runs the model on whole sequences.
func (w *writer) logits(ids [][]int64) (*execute.Tensor, error) {
	all, err := w.run(ids, nil, w.model.Logits)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func (w *writer) run(ids [][]int64, past []*execute.Tensor, outputs ...string) ([]*execute.Tensor, error) {
	inputs, err := w.model.Inputs(ids, past)
	if err != nil {
		return nil, err
	}
	all, err := w.session.Run(inputs, outputs...)
	if err != nil {
		return nil, err
	}
	if want := len(ids) * len(ids[0]) * int(w.model.Vocabulary); all[0].Len() != want {
		return nil, fmt.Errorf("output %q has %d elements, want %d", w.model.Logits, all[0].Len(), want)
	}
	return all, nil
}

// batch generates n sequences; first is the number of the first one.
func (w *writer) batch(ctx context.Context, first, n int) ([][]int64, error) {
	rngs := make([]*rand.Rand, n)
	ids := make([][]int64, n)
	for i := range ids {
		rngs[i] = w.random(first + i)
		ids[i] = append(make([]int64, 0, w.opts.Length), rngs[i].Int64N(w.model.Vocabulary))
	}
	shares := make([]float64, w.model.Vocabulary)
	next := w.whole
	if len(w.model.Past) > 0 {
		next = (&cached{w: w}).next
	}
	for length := 1; length < w.opts.Length; length++ {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		logits, err := next(ids)
		if err != nil {
			return nil, err
		}
		for i, x := range logits {
			id, ok := sample(x, rngs[i].Float64(), shares)
			if !ok {
				return nil, fmt.Errorf("output %q is NaN or infinite", w.model.Logits)
			}
			ids[i] = append(ids[i], id)
		}
		if w.opts.Progress != nil {
			w.opts.Progress(first*w.opts.Length+n*(length+1), w.opts.N*w.opts.Length)
		}
	}
	return ids, nil
}

// memory is the smallest number of ids from which a model without a past continues. It gets less than
// twice as many: all ids would take several times as long.
const memory = 16

// whole runs the model on sequences, and returns the logits after them.
func (w *writer) whole(ids [][]int64) ([][]float32, error) {
	ids = slices.Clone(ids)
	at := len(ids[0]) - 1
	from := max(at/memory-1, 0) * memory
	if w.model.Length == 0 {
		at -= from
	}
	for i := range ids {
		if w.model.Length == 0 {
			ids[i] = ids[i][from:]
		} else { // padding: ids after the last one do not matter
			ids[i] = append(slices.Clone(ids[i]), make([]int64, int(w.model.Length)-len(ids[i]))...)
		}
	}
	t, err := w.logits(ids)
	if err != nil {
		return nil, err
	}
	return w.rows(t, len(ids[0]), at), nil
}

// rows returns the logits of an id of each sequence.
func (w *writer) rows(t *execute.Tensor, length, at int) (rows [][]float32) {
	size := int(w.model.Vocabulary)
	bytes := size * t.Size()
	for i := at; i*bytes < len(t.Data); i += length {
		row := *t
		row.Data = t.Data[i*bytes : (i+1)*bytes]
		rows = append(rows, row.Float32s())
	}
	return rows
}

// cached runs a model with a past, on one id of each sequence at a time.
type cached struct {
	w    *writer
	past []*execute.Tensor
}

func (c *cached) next(ids [][]int64) ([][]float32, error) {
	last := make([][]int64, len(ids))
	for i := range ids {
		last[i] = ids[i][len(ids[i])-1:]
	}
	all, err := c.w.run(last, c.past, append([]string{c.w.model.Logits}, c.w.model.Present...)...)
	if err != nil {
		return nil, err
	}
	c.past = all[1:]
	for i, t := range c.past {
		t.Name = c.w.model.Past[i]
		if len(t.Dims) < 3 {
			return nil, fmt.Errorf("output %q has %d axes, want one for the ids, and one after it", c.w.model.Present[i], len(t.Dims))
		}
	}
	return c.w.rows(all[0], 1, 0), nil
}

// sample returns the id at u, 0 ≤ u < 1, of the distribution that logits stand for. shares is room for as many numbers.
func sample(logits []float32, u float64, shares []float64) (int64, bool) {
	top := float64(slices.Max(logits))
	sum := 0.0
	for i, x := range logits {
		shares[i] = math.Exp(float64(x) - top)
		sum += shares[i]
	}
	if math.IsNaN(sum) || math.IsInf(top, 0) {
		return 0, false
	}
	u *= sum
	for i, share := range shares[:len(logits)] {
		if u -= share; u < 0 {
			return int64(i), true
		}
	}
	return int64(len(logits) - 1), true
}
