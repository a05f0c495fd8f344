package sensitivity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"
	"google.golang.org/protobuf/proto"

	"onnxquant/internal/convert"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/observe"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/spec"
)

// The limit of the damage is a small part above the damage of the weights alone.
const (
	aboveExact  = 1.1
	leastDamage = 1e-4 // less does not count
)

// Levels chooses the accuracy_level of each MatMulNBits of a conversion. Level 4 rounds activations to 8 bits and is fast.
// Level 1 leaves them in float. ONNX Runtime computes levels 2 and 3 as level 1 on a CPU.
//
// Find runs the output on held-out samples. It gives level 1 to few products, those that do most damage for their time. A
// row is flipped if its largest element is not that of the float model, though it is with level 1 everywhere. Find goes on
// until no more rows are flipped than the limit, and the damage is hardly above that of the weights.
type Levels struct {
	Found onnxq.AccuracyLevels // what Find found

	fitting
	file  string // a copy of the output, whose levels are changed
	copy  *onnxpb.ModelProto
	parts []levelPart
	drop  float64
	float [][]int // positions of the largest elements with level 1, by list of samples; undecided: they are not the float model's
	least float64 // damage with level 1
}

// levelPart is a weight, and the attributes of the products that read it.
type levelPart struct {
	weight string
	levels []*onnxpb.AttributeProto
	cost   float64 // time of level 1 above that of level 4, beside other parts
}

// NewLevels opens the data of opts for the model at path. A quarter of the samples is held out for Find. drop is the share
// of rows that may be flipped.
func NewLevels(ctx context.Context, path string, opts calibrate.Options, drop float64) (*Levels, error) {
	l := &Levels{fitting: fitting{path: path, data: opts, options: &onnxq.Options{}}, drop: drop}
	err := l.open(ctx)
	if err == nil && l.all.Engine().IsGo() {
		err = fmt.Errorf("levels of accuracy are those of ONNX Runtime's kernels: %w", cmp.Or(l.all.Lacked(), errors.New("ONNX Runtime is not used")))
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	l.Found.Samples, l.Found.HeldOut = l.data.Samples, l.apart
	return l, nil
}

// Close ends what NewLevels began.
func (l *Levels) Close() { l.close() }

// Rest returns the data without the samples that are held out, for codes of weights.
func (l *Levels) Rest() *calibrate.Data { return calibrate.New(l.path, l.data) }

// Find is an onnxq.Options.FindLevels.
func (l *Levels) Find(ctx context.Context, path string, weights map[string]string) (map[string]spec.AccuracyLevel, error) {
	if err := l.openOutput(ctx, path, weights); err != nil || len(l.parts) == 0 {
		return nil, err
	}
	if err := l.run(ctx); err != nil {
		return nil, err
	}
	if l.held == nil {
		return nil, errors.New("levels of accuracy: no output of a floating-point type to compare")
	}
	l.Found.Engine = l.held.engine.Name()
	raised, err := l.raise(ctx)
	if err != nil {
		return nil, err
	}
	levels := map[string]spec.AccuracyLevel{}
	for _, i := range raised {
		l.Found.Raised = append(l.Found.Raised, l.parts[i].weight)
		levels[l.parts[i].weight] = spec.AccuracyFloat32
	}
	return levels, l.time(ctx, raised)
}

// openOutput reads the structure of the output at path, and finds its products of weights.
func (l *Levels) openOutput(ctx context.Context, path string, weights map[string]string) error {
	m, err := modelfile.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	l.file = path
	if !isExternal(m.Proto) { // contents are stored once, beside what changes
		l.file = filepath.Join(filepath.Dir(path), "levels-"+filepath.Base(path))
		if err := convert.WriteApart(ctx, m, l.file); err != nil {
			return err
		}
	}
	b, err := os.ReadFile(l.file)
	if err != nil {
		return err
	}
	l.copy, l.parts = new(onnxpb.ModelProto), nil
	if err := proto.Unmarshal(b, l.copy); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	l.file = filepath.Join(filepath.Dir(path), "level-"+filepath.Base(path))
	graph.WalkNodes(l.copy, func(n *onnxpb.NodeProto) { l.add(n, weights) })
	l.Found.Of = len(l.parts)
	return nil
}

// isExternal reports whether contents are in external data.
func isExternal(m *onnxpb.ModelProto) (external bool) {
	graph.WalkAllGraphs(m, func(g *onnxpb.GraphProto) {
		external = external || slices.ContainsFunc(g.Initializer, func(t *onnxpb.TensorProto) bool {
			return t.GetDataLocation() == onnxpb.TensorProto_EXTERNAL
		})
	})
	return external
}

// add notes a product of one of the weights.
func (l *Levels) add(n *onnxpb.NodeProto, weights map[string]string) {
	const codes = 1 // input
	level := graph.Attribute(n, "accuracy_level")
	if graph.Operator(n) != graph.Contrib+".MatMulNBits" || len(n.Input) <= codes || level.GetI() != int64(spec.AccuracyInt8) {
		return
	}
	weight, ok := weights[n.Input[codes]]
	if !ok {
		return
	}
	i := slices.IndexFunc(l.parts, func(p levelPart) bool { return p.weight == weight })
	if i < 0 {
		i, l.parts = len(l.parts), append(l.parts, levelPart{weight: weight})
	}
	l.parts[i].levels = append(l.parts[i].levels, level)
	l.parts[i].cost += float64(graph.IntAttribute(n, "K")) * float64(graph.IntAttribute(n, "N")) * decoding(graph.IntAttribute(n, "bits"))
}

// decoding is how much time level 1 takes beside that of 4 bits. ONNX Runtime decodes other numbers of bits at every run.
func decoding(bits int64) float64 {
	if bits == 4 {
		return 1
	}
	return 15
}

// session opens the output with level 4 at some parts, and level 1 at the others.
func (l *Levels) session(ctx context.Context, int8 func(i int) bool) (execute.Session, error) {
	for i, p := range l.parts {
		level := int64(spec.AccuracyFloat32)
		if int8(i) {
			level = int64(spec.AccuracyInt8)
		}
		for _, a := range p.levels {
			a.I = &level
		}
	}
	b, err := proto.Marshal(l.copy)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(l.file, b, 0o600); err != nil {
		return nil, err
	}
	return l.held.engine.Open(ctx, l.file)
}

func everywhere(int) bool { return true }
func nowhere(int) bool    { return false }
func besides(raised []int) func(i int) bool {
	return func(i int) bool { return !slices.Contains(raised, i) }
}

// raise returns the parts that get level 1, the worst first.
func (l *Levels) raise(ctx context.Context) (raised []int, err error) {
	f := &l.Found
	if f.Float, err = l.loss(ctx, nowhere); err != nil {
		return nil, err
	}
	f.Flips = int(l.drop * float64(f.Rows))
	f.Limit = min(max(aboveExact*f.Float.Damage, leastDamage), math.MaxFloat64)
	if f.Int8, err = l.loss(ctx, everywhere); err != nil {
		return nil, err
	}
	if f.Chosen = f.Int8; l.holds(f.Chosen) {
		return nil, nil
	}
	order, err := l.order(ctx)
	if err != nil {
		return nil, err
	}
	n, err := l.enough(ctx, order)
	if err != nil {
		return nil, err
	}
	return l.fewer(ctx, order[:n])
}

func (l *Levels) holds(x onnxq.LevelLoss) bool {
	return x.Flipped <= l.Found.Flips && x.Damage <= l.Found.Limit
}

// order returns blocks of parts, first those that do most damage for the time of level 1.
func (l *Levels) order(ctx context.Context) ([]block, error) {
	x := &mix{Sensitivity: l.held, noun: "product"}
	for _, p := range l.parts {
		x.parts = append(x.parts, p.weight)
	}
	var exact [][]*execute.Tensor
	outputs := func(ctx context.Context, s samples, int8 func(i int) bool) (all [][]*execute.Tensor, err error) {
		session, err := l.session(ctx, int8)
		if err != nil {
			return nil, err
		}
		defer session.Close()
		err = l.held.each(ctx, session, s, func(_, got []*execute.Tensor) error {
			all = append(all, got)
			return nil
		})
		return all, err
	}
	damage := func(ctx context.Context, s samples, int8 func(i int) bool) (_ float64, err error) {
		if exact == nil {
			if exact, err = outputs(ctx, s, nowhere); err != nil {
				return 0, err
			}
		}
		got, err := outputs(ctx, s, int8)
		sum := l.held.damages()
		for i := range got {
			sum.add(exact[i], got[i])
		}
		return sum.total(), err
	}
	blocks, err := x.order(ctx, &measure{damage: damage, blocks: maxBlocks, few: conversionSamples})
	gain := func(b block) float64 { return b.damage / l.cost(b) }
	slices.SortStableFunc(blocks, func(a, b block) int { return cmp.Compare(gain(b), gain(a)) })
	return blocks, err
}

func (l *Levels) cost(b block) (sum float64) {
	for _, i := range b.parts {
		sum += l.parts[i].cost
	}
	return sum
}

// enough returns how many blocks need level 1.
func (l *Levels) enough(ctx context.Context, order []block) (int, error) {
	return leastCount(len(order), func(n int) (bool, error) { return l.enoughAt(ctx, order[:n]) })
}

// enoughAt reports whether level 1 at some blocks holds the limits. If so, it notes the loss.
func (l *Levels) enoughAt(ctx context.Context, blocks []block) (bool, error) {
	loss, err := l.loss(ctx, besides(floatIn(blocks)))
	if err == nil && l.holds(loss) {
		l.Found.Chosen = loss
		return true, nil
	}
	return false, err
}

// mostFewer is the number of blocks that fewer tries.
const mostFewer = 12

// fewer returns the parts of blocks without those that need no level 1, of the last ones first.
func (l *Levels) fewer(ctx context.Context, blocks []block) ([]int, error) {
	if !l.holds(l.Found.Chosen) { // all have level 1
		l.Found.Chosen = l.Found.Float
	}
	for i, tries := len(blocks)-1, 0; i >= 0 && len(blocks) > 1 && tries < mostFewer; i, tries = i-1, tries+1 {
		rest := slices.Delete(slices.Clone(blocks), i, i+1)
		ok, err := l.enoughAt(ctx, rest)
		if err != nil {
			return nil, err
		}
		if ok {
			blocks = rest
		}
	}
	return floatIn(blocks), nil
}

// lists are the samples that decide.
func (l *Levels) lists() []samples {
	if len(l.held.chain.list) > 0 {
		return []samples{l.held.others, l.held.chain}
	}
	return []samples{l.held.others}
}

// loss runs the output. The first call is that with level 1 everywhere.
func (l *Levels) loss(ctx context.Context, int8 func(i int) bool) (x onnxq.LevelLoss, err error) {
	session, err := l.session(ctx, int8)
	if err != nil {
		return x, err
	}
	defer session.Close()
	first := l.float == nil
	for i, s := range l.lists() {
		damage := l.held.damages()
		var want, largest []int
		err := l.held.each(ctx, session, s, func(w, got []*execute.Tensor) error {
			if largest = append(largest, l.held.decisions(got)...); first {
				want = append(want, l.held.decisions(w)...)
			}
			return damage.add(w, got)
		})
		if err != nil {
			return x, err
		}
		x.Damage = min(max(x.Damage, damage.total()), math.MaxFloat64) // JSON has no infinity
		if first {
			for j := range want {
				if j < len(largest) && largest[j] != want[j] {
					want[j] = undecided
				}
			}
			l.float = append(l.float, want)
			l.Found.Rows += len(want)
			continue
		}
		if len(largest) != len(l.float[i]) {
			return onnxq.LevelLoss{Damage: math.MaxFloat64, Flipped: l.Found.Rows}, nil
		}
		for j, at := range l.float[i] {
			if at != undecided && at != largest[j] {
				x.Flipped++
			}
		}
	}
	return x, nil
}

// undecided is the position of a row that is not the float model's with level 1.
const undecided = -2

// decisions lists the positions of the largest elements of rows, of all outputs whose damage counts.
func (s *Sensitivity) decisions(outputs []*execute.Tensor) (all []int) {
	for k, o := range s.outputs {
		n, x := classes(outputs[k]), outputs[k].Float64s()
		if o.kind == unweighed || n < 2 {
			continue
		}
		for j := 0; j+n <= len(x); j += n {
			all = append(all, largest(x[j:j+n]))
		}
	}
	return all
}

// Turns in which levels are timed.
const (
	levelTurns = 3
	levelTurn  = 150 * time.Millisecond
	levelWarm  = 50 * time.Millisecond
)

// time measures runs of the first held-out sample, with level 4, level 1 and the chosen levels in turn.
func (l *Levels) time(ctx context.Context, raised []int) error {
	f := &l.Found
	for range levelTurns {
		for _, x := range []struct {
			int8 func(i int) bool
			loss *onnxq.LevelLoss
		}{{everywhere, &f.Int8}, {nowhere, &f.Float}, {besides(raised), &f.Chosen}} {
			seconds, err := l.timeOf(ctx, x.int8)
			if err != nil {
				return err
			}
			if x.loss.Seconds == 0 || seconds < x.loss.Seconds {
				x.loss.Seconds = seconds
			}
		}
	}
	return nil
}

// timeOf is the CPU time of a run.
func (l *Levels) timeOf(ctx context.Context, int8 func(i int) bool) (float64, error) {
	session, err := l.session(ctx, int8)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	inputs, _, err := l.held.others.list[0].load()
	if err != nil {
		return 0, err
	}
	return observe.CPUTime(session, inputs, levelWarm, levelTurn)
}

// LevelFacts says which weights have level 1, and what levels do to the outputs: a label and a text each.
func LevelFacts(f *onnxq.AccuracyLevels) (facts [][2]string) {
	if f == nil {
		return nil
	}
	add := func(format string, args ...any) {
		facts = append(facts, [2]string{"levels", fmt.Sprintf(format, args...)})
	}
	switch {
	case f.Of == 0:
		add("no MatMulNBits has an accuracy_level to choose")
		return facts
	case len(f.Raised) == 0:
		add("4 for all %s", english.Plural(f.Of, "weight", ""))
	default:
		add("1 for %d of %s, 4 for the others: %s", len(f.Raised), english.Plural(f.Of, "weight", ""), msg.ListNames(slices.Clone(f.Raised)))
	}
	text := func(x onnxq.LevelLoss) string {
		return fmt.Sprintf("%d flipped, damage %.2g, %.3g ms of CPU time a run", x.Flipped, x.Damage, 1e3*x.Seconds)
	}
	add("%s on %s of %s", text(f.Chosen), english.Plural(f.Rows, "row", ""), heldOut(f.HeldOut))
	if len(f.Raised) > 0 {
		add("with 4 everywhere: %s; with 1: %s", text(f.Int8), text(f.Float))
	}
	return facts
}
