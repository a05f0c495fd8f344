package verify

import (
	"context"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/kvcache"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/samples"
)

// cached is the session of a model with key-value caches of int8. It takes and returns caches of floats.
type cached struct {
	execute.Session
	caches []kvcache.Codes
}

// openCached opens a model that may have key-value caches of int8.
func openCached(ctx context.Context, r execute.Runner, path string) (execute.Session, error) {
	m, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	x, err := graph.New(m)
	if err != nil {
		return nil, err
	}
	caches, err := kvcache.Coded(x)
	if err != nil {
		return nil, err
	}
	s, err := r.Session(ctx, path)
	if err != nil || len(caches) == 0 {
		return s, err
	}
	return cached{s, caches}, nil
}

// Run implements execute.Session.
func (s cached) Run(inputs []*execute.Tensor, values ...string) ([]*execute.Tensor, error) {
	inputs = slices.Clone(inputs)
	for i, t := range inputs {
		k := slices.IndexFunc(s.caches, func(c kvcache.Codes) bool { return c.Input == t.Name })
		if k < 0 || !t.IsFloat() {
			continue
		}
		codes, err := s.caches[k].Encode(t.Dims, t.Float32s())
		if err != nil {
			return nil, err
		}
		inputs[i] = &execute.Tensor{Name: t.Name, DType: dtype.Int8, Dims: t.Dims, Data: codes}
	}
	all, err := s.Session.Run(inputs, values...)
	if err != nil {
		return nil, err
	}
	for i, t := range all {
		k := slices.IndexFunc(s.caches, func(c kvcache.Codes) bool { return c.Output == t.Name })
		if k < 0 || t.DType != dtype.Int8 {
			continue
		}
		c := s.caches[k]
		x, err := c.Decode(t.Dims, t.Data)
		if err != nil {
			return nil, err
		}
		y := make([]float64, len(x))
		for i, v := range x {
			y[i] = float64(v)
		}
		if all[i], err = execute.FromFloat64s(c.Was, t.Dims, y); err != nil {
			return nil, err
		}
		all[i].Name = t.Name
	}
	return all, nil
}

// generation are runs as a language model generates text: a prompt at once, then its continuation token by token. Each model
// has its own cache.
type generation struct {
	language *samples.Language
	ids      [][]int64
	prompt   int
}

// mostSteps bounds the tokens that are read one by one.
const mostSteps = 8

// generation returns the runs for the tokens of the first sample, if OUT has a cache of int8 and IN is a language model; else nil.
func (v *verifier) generation(used trial) *generation {
	out, err := modelfile.Open(v.out)
	if err != nil {
		return nil
	}
	defer out.Close()
	if x, err := graph.New(out); err != nil || !kvcache.HasCodes(x) {
		return nil
	}
	in, err := modelfile.Open(v.in)
	if err != nil {
		return nil
	}
	defer in.Close()
	l, err := samples.NewLanguage(in)
	if err != nil || len(l.Past) == 0 || len(used.inputs) == 0 {
		return nil
	}
	i := slices.IndexFunc(used.inputs[0], func(t *execute.Tensor) bool { return t.Name == l.IDs() })
	if i < 0 || len(used.inputs[0][i].Dims) != 2 || used.inputs[0][i].Dims[1] < 2 {
		return nil
	}
	t := used.inputs[0][i]
	length := int(t.Dims[1])
	g := &generation{language: l, prompt: length - min(mostSteps, length/2)}
	for row := range slices.Chunk(t.Int64s(), length) {
		g.ids = append(g.ids, row)
	}
	return g
}

// run returns the outputs of all runs.
func (g *generation) run(s execute.Session) (all [][]*execute.Tensor, err error) {
	var past []*execute.Tensor
	at := 0
	for end := g.prompt; end <= len(g.ids[0]); end++ {
		var ids [][]int64
		for _, row := range g.ids {
			ids = append(ids, row[at:end])
		}
		inputs, err := g.language.Inputs(ids, past)
		if err != nil {
			return nil, err
		}
		outputs, err := s.Run(inputs)
		if err != nil {
			return nil, err
		}
		all, past, at = append(all, outputs), nil, end
		for i, name := range g.language.Present {
			k := slices.IndexFunc(outputs, func(t *execute.Tensor) bool { return t.Name == name })
			if k < 0 {
				return all, nil
			}
			next := *outputs[k]
			next.Name = g.language.Past[i]
			past = append(past, &next)
		}
	}
	return all, nil
}
