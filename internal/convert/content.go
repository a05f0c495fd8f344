package convert

import (
	"context"
	"fmt"
	"io"
	"sync"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/internal/commit"
	"onnxquant/internal/discover"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/quantize"
	"onnxquant/internal/work"
	"onnxquant/internal/write"
	"onnxquant/spec"
)

// Reasons to leave a weight in float that depend on its values.
const (
	reasonBroken   = "holds NaN or infinity"
	reasonBeyond   = "holds NaN, infinity or values too large for a float16 scale"
	reasonHuge     = "holds NaN, infinity or values beyond float32"
	reasonVanished = "too many of its blocks became 0"
	reasonLost     = "its values are too small for any scale"
	reasonMoved    = "the data would move it farther from its values than 0 is"
)

// content writes the content of one output: tiles of quantized weights, and stretches that are
// copied. Call begin, then do for each task in any order, then finish.
type content struct {
	plan      *Plan
	path      string
	file      write.File
	target    *commit.Target  // nil if it could not be created
	sinks     []io.WriterAt   // by content of the output
	ctx       context.Context // of the tasks; done once a task fails
	stop      context.CancelCauseFunc
	run       *quantize.Run
	workers   int
	stretches []write.Stretch
	outcomes  []quantize.Outcome // by tile
	sums      []uint32           // checksums, by stretch
	progress  *progress
}

// worker has the buffers of one worker.
type worker struct {
	tiles quantize.Buffers
	raw   []byte // for stretches
}

func newContent(p *Plan, path string, progress *progress) *content {
	c := &content{plan: p, path: path, stretches: p.Output.Stretches(), progress: progress}
	c.run, c.workers = p.Quantization()
	c.outcomes, c.sums = make([]quantize.Outcome, len(c.run.Tiles)), make([]uint32, len(c.stretches))
	progress.total = progress.done + c.run.TensorScaleBytes()
	for i, t := range c.run.Tiles {
		progress.total += t.SourceBytes() + c.written(i)
	}
	for _, s := range c.stretches {
		progress.total += s.Len + c.copied(s)
	}
	return c
}

// written returns the number of bytes of a tile that verification reads again.
func (c *content) written(tile int) int64 {
	if c.plan.opts.NoVerify || c.plan.contents[c.run.WeightOf(tile)].Codes < 0 {
		return 0
	}
	return c.run.Tiles[tile].CodeBytes()
}

func (c *content) copied(s write.Stretch) int64 {
	if c.plan.opts.NoVerify {
		return 0
	}
	return s.Len
}

// begin creates the temporary files.
func (c *content) begin(ctx context.Context) {
	c.ctx, c.stop = context.WithCancelCause(ctx)
	if h := c.plan.Half; h != nil {
		h.ForgetVanished()
	}
	if err := c.create(); err != nil {
		c.stop(err)
	}
}

func (c *content) create() (err error) {
	out := c.plan.Output
	c.file = write.File{Path: c.path, Model: c.plan.graph.File, Data: out.Data(), NoVerify: c.plan.opts.NoVerify, Try: c.plan.try(), Seal: out.Seal, Rename: out.Rename}
	if c.target, err = c.file.Begin(c.ctx); err != nil {
		return err
	}
	if c.sinks, err = out.Begin(c.target); err != nil {
		return err
	}
	var to []quantize.Sinks
	for _, p := range c.plan.contents {
		to = append(to, quantize.Map(p, func(i int) io.WriterAt {
			if i < 0 {
				return nil
			}
			return c.sinks[i]
		}))
	}
	c.run.WriteTo(to)
	return c.run.FindTensorScales(c.ctx, c.workers, c.progress.add)
}

// tasks returns the number of tasks: tiles, then stretches.
func (c *content) tasks() int { return len(c.run.Tiles) + len(c.stretches) }

// task describes a task.
func (c *content) task(i int) task {
	if i >= len(c.run.Tiles) {
		return task{of: c, i: i, at: c.stretches[i-len(c.run.Tiles)].Place()}
	}
	tile := c.run.Tiles[i]
	t := task{of: c, i: i, reading: c.run.Reading(i)}
	if r, ok := tile.Source.(modelfile.Placed); ok {
		t.at = r.Place(tile.Start())
	}
	if tile.Rounded != nil {
		t.rounds = 1
	}
	return t
}

// do does a task. After an error, the remaining tasks of this output do nothing.
func (c *content) do(w *worker, task int) {
	if c.ctx.Err() != nil {
		return
	}
	var err error
	if i := task - len(c.run.Tiles); i < 0 {
		err = c.quantize(c.ctx, w, task)
	} else {
		err = c.copy(w, i)
	}
	if err != nil {
		c.stop(err)
	}
}

// copy copies a stretch.
func (c *content) copy(w *worker, stretch int) (err error) {
	s := c.stretches[stretch]
	defer c.progress.add(s.Len)
	if c.run.Spoiled() {
		return nil
	}
	c.sums[stretch], err = s.Copy(&w.raw, c.sinks[s.Content])
	return err
}

// finish verifies the output and gives it its name.
func (c *content) finish(ctx context.Context) error {
	err := context.Cause(c.ctx)
	c.stop(nil)
	if c.target == nil {
		return err
	}
	if err == nil {
		err = c.demands()
	}
	return c.file.Finish(ctx, c.target, c, err)
}

// demands returns the findings as an error if the values demand another plan.
func (c *content) demands() error {
	found := findings{weights: c.unfit()}
	for _, v := range c.plan.static.Broken() {
		found.weights[v.Path] = discover.Exception{KeepFloat: reasonBroken}
	}
	if h := c.plan.Half; h != nil && len(h.Beyond()) > 0 {
		found = findings{beyond: h.Beyond()} // another plan reads the weights again
	}
	if found.none() {
		return nil
	}
	return found
}

// quantize quantizes a tile and reports progress.
func (c *content) quantize(ctx context.Context, w *worker, tile int) error {
	told := int64(0)
	defer func() { c.progress.add(c.run.Tiles[tile].SourceBytes() - told) }()
	return c.run.Quantize(ctx, &w.tiles, tile, &c.outcomes[tile], func(n int64) {
		told += n
		c.progress.add(n)
	})
}

// hugeNorm is a limit for the norm of a weight. Above it, products with scales and 8-bit
// activations may overflow: ONNX Runtime sums them in float32.
const hugeNorm = 1e30

// unfit returns the weights whose values cannot be quantized as planned.
func (c *content) unfit() discover.Exceptions {
	found, largest := discover.Exceptions{}, c.largestScales()
	vanished, _ := c.lost()
	for i, s := range c.errors() {
		var e discover.Exception
		w := c.plan.Weights[i]
		to, other := c.otherScales(i, largest[i], vanished[i])
		switch broken := c.run.Broken(i); {
		case broken && w.DType == dtype.Float64:
			e.KeepFloat = reasonHuge
		case broken && w.Form.Encoded():
			e.KeepFloat = reasonBeyond
		case broken:
			e.KeepFloat = reasonBroken
		case c.run.Spoiled() || s.SumSq == 0:
			continue
		case other: // try the other type before leaving the weight in float
			if e.Scales = to; vanished[i] > fewVanished && c.plan.weights[i].Found != nil {
				e.MSE = reasonVanished // the codes by data go with the scales of the first type
			}
		case s.SumSqErr >= s.SumSq && c.plan.weights[i].Found != nil:
			e.MSE = reasonMoved
		case s.SumSqErr >= s.SumSq:
			e.KeepFloat = reasonLost
		case s.SumSq > hugeNorm*hugeNorm && w.Choice.Style == spec.NBits && w.Choice.AccuracyLevel == spec.AccuracyDefault:
			e.Huge = true
		default:
			continue
		}
		found[w.Value.Path] = e
	}
	return found
}

// otherScales returns the type that the scales of a weight need. other is false if their planned
// type suffices. vanished is the share of the weight's elements whose blocks became 0.
func (c *content) otherScales(weight int, largest float32, vanished float64) (to discover.Scales, other bool) {
	switch c.plan.Weights[weight].Choice.ScaleType {
	case spec.ScaleInt8, spec.ScaleUint8:
		return float16Scales, c.run.NeedsFloat16Scales(weight) || vanished > fewVanished
	case spec.ScaleFloat16:
		const least, greatest = 0x1p-14, 65504 // normal numbers
		if largest < least || largest >= greatest {
			return discover.Scales{Type: spec.ScaleFloat32, Why: fmt.Sprintf("the largest is %.3g", largest)}, true
		}
		return discover.Scales{Type: spec.ScaleFloat32, Why: fmt.Sprintf("%.3g%% of the elements are too small for float16 ones", 100*vanished)}, vanished > fewVanished
	}
	return to, false
}

// float16Scales replaces 8-bit scales if 8 bits are too coarse.
var float16Scales = discover.Scales{Type: spec.ScaleFloat16, Why: "they are too different for 8 bits"}

// largestScales returns the largest magnitude of a scale of each weight.
func (c *content) largestScales() []float32 {
	largest := make([]float32, len(c.plan.Weights))
	for i, o := range c.outcomes {
		w := c.run.WeightOf(i)
		largest[w] = max(largest[w], o.Scale)
	}
	return largest
}

// fewVanished is the share of a weight that may become 0 without a warning. Trained models have
// some rows of numbers near 0.
const fewVanished = 0.01

// lost returns the share of each weight's elements in vanished blocks, and in coarse ones.
func (c *content) lost() (vanished, coarse []float64) {
	vanished, coarse = make([]float64, len(c.plan.Weights)), make([]float64, len(c.plan.Weights))
	for i, o := range c.outcomes {
		w := c.run.WeightOf(i)
		size := float64(c.plan.Weights[w].Form.Elements())
		vanished[w] += float64(o.Vanished) / size
		coarse[w] += float64(o.Coarse) / size
	}
	return vanished, coarse
}

// roundedAway returns the share of each weight's elements that half makes 0.
func (c *content) roundedAway() []float64 {
	share := make([]float64, len(c.plan.Weights))
	for i, o := range c.outcomes {
		w := c.run.WeightOf(i)
		share[w] += float64(o.Rounded) / float64(c.plan.Weights[w].Form.Elements())
	}
	return share
}

// warnings names the weights with many vanished or coarse blocks, or elements that half makes 0.
func (c *content) warnings() (all []string) {
	vanished, coarse := c.lost()
	rounded := c.roundedAway()
	for i, w := range c.plan.Weights {
		if share := rounded[i]; share > fewVanished {
			all = append(all, c.plan.tooSmallForHalf(w.Decision, share))
		}
		name := msg.Quote(w.Value.Path)
		if share := vanished[i]; share > fewVanished {
			all = append(all, fmt.Sprintf("%s: %.3g%% of its elements became 0: they are too small for a scale of %s", name, 100*share, w.Choice.Format))
		}
		if share := coarse[i]; share > fewVanished {
			all = append(all, fmt.Sprintf("%s: %.3g%% of its elements lose precision: they are so small that the float16 scales of %s have few bits; --bits %d has float32 scales",
				name, 100*share, w.Choice.Format, w.Choice.Format.Bits()))
		}
	}
	return append(all, c.plan.vanishedHalves()...)
}

// errors returns the errors of each weight, merged in the order of tiles.
func (c *content) errors() []errstat.Stats {
	stats := make([]errstat.Stats, len(c.plan.Weights))
	for i, o := range c.outcomes {
		stats[c.run.WeightOf(i)].Merge(o.Errors)
	}
	return stats
}

// Verify implements write.Verifier. It checks the structure and the size of every tensor, and
// compares checksums of all codes, scales, zero points and copied contents.
func (c *content) Verify(ctx context.Context, target *commit.Target) error {
	model, contents, err := c.plan.Output.Reopen(target)
	if err != nil {
		return err
	}
	defer model.Close()
	var from []quantize.Contents
	for i, p := range c.plan.contents {
		from = append(from, quantize.Map(p, func(i int) io.ReaderAt {
			if i < 0 {
				return nil
			}
			return contents[i]
		}))
		if from[i].TensorScale == nil {
			continue
		}
		switch same, err := c.run.TensorScaleIs(i, from[i]); {
		case err != nil:
			return err
		case !same:
			return differs("the scale of " + msg.Quote(c.plan.Weights[i].Value.Path))
		}
	}
	return work.Each(ctx, c.workers, len(c.run.Tiles)+len(c.stretches), func(ctx context.Context, w *worker, i int) error {
		if i < len(c.run.Tiles) {
			weight := c.run.WeightOf(i)
			same, err := c.run.Written(&w.tiles, i, &c.outcomes[i], from[weight])
			if err == nil && !same {
				err = differs(msg.Quote(c.plan.Weights[weight].Value.Path))
			}
			c.progress.add(c.written(i))
			return err
		}
		i -= len(c.run.Tiles)
		s := c.stretches[i]
		sum, err := s.Sum(&w.raw, contents[s.Content])
		if err == nil && sum != c.sums[i] {
			err = differs(msg.Quote(c.plan.Output.Name(s.Content)))
		}
		c.progress.add(c.copied(s))
		return err
	})
}

func differs(what string) error {
	return fmt.Errorf("%w: %s differs from what was written", write.ErrVerify, what)
}

// progress counts processed bytes over all attempts of a conversion.
type progress struct {
	tell func(done, total int64)

	mu          *sync.Mutex // shared by all conversions that run together: one reports at a time
	done, total int64
}

func (p *progress) add(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += bytes
	if p.tell != nil {
		p.tell(p.done, p.total)
	}
}
