package compare

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/formats/dtype"
	"onnxquant/internal/balance"
	"onnxquant/internal/graph"
	"onnxquant/internal/half"
	"onnxquant/internal/intops"
	"onnxquant/internal/lazy"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/provenance"
	"onnxquant/internal/recognize"
	"onnxquant/internal/simplify"
	"onnxquant/onnxq/restyle"
)

// matcher is the state of MatchWeights.
type matcher struct {
	ctx   context.Context
	a, b  *recognize.Recognizer      // a at the opset of b
	names map[string]*restyle.Weight // by name of the float tensor
	seen  map[pairing]bool           // compared constants

	stored   map[string]bool               // by keyOfValue: whether a stores it
	compared map[string]bool               // by keyOfValue: whether a weight of b was compared
	claimed  map[*graph.Value]*graph.Value // weight of b → the weight of a that it was compared with

	factored map[string][]factored // by keyOfValue: weights of a that have factors in b

	half               dtype.DType             // type that float32 became in b, or 0
	rounds             func(path string) bool  // whether a stored value of a became half
	ranges, rangesWere map[string]intops.Range // of values of b, and of a, that were codes before

	detail   bool                                  // set WeightMatch.Detail
	detailed []int                                 // weights of the result that have one
	readable map[*restyle.Weight]*recognize.Weight // weight of b that was folded → the same one, which can be read
	was      map[string]*recognize.Weight          // by keyOfValue: weight of a that was folded, which can be read

	gone, fresh []bool                        // nodes of a, and of b, without a partner, by number
	partner     []*onnxpb.NodeProto           // by number of a node of a: the same node of b
	twin        map[*graph.Value]*graph.Value // input of a graph of a → the same one of b
	steady      map[*graph.Value]bool         // whether a value depends on constants alone
	coded       map[coding]bool               // activations of b that are quantized
	depth       int                           // of the recursion

	arena lazy.Arena // for elements that are compared

	progress          func(done, total int64) // may be nil
	done, told, total int64                   // bytes of a: compared, reported, all
	result            *Match
}

// pairing is a pair of constants; transposed: the first is the transpose of the second.
type pairing struct {
	v, w       *graph.Value
	transposed bool
}

// deepestMatch bounds the recursion along a chain of nodes, against hostile models.
const deepestMatch = 1 << 16

// match compares with a, raised with the nodes of opaque outputs hidden.
func (c *comparison) match(ctx context.Context, opaque map[string]bool) (*Match, error) {
	a, b := c.a.Model.Graph(), c.b.Model.Graph()
	m := newMatcher(ctx, c)
	from := a
	if c.simple != nil {
		from = c.simple.Graph
		m.foldNote(c.simple.Counts)
	}
	x, err := m.likeB(from, b, opaque)
	if err != nil {
		return nil, err
	}
	m.begin(x, b)
	for w, same := range c.a.readable() {
		m.was[w.Became] = same
	}
	graph.WalkNodes(a.File.Proto, func(*onnxpb.NodeProto) { m.result.Nodes++ })
	for i, w := range c.b.Folded.Weights {
		m.names[w.Became] = &c.b.Folded.Weights[i]
		if w.Reason != "" {
			m.note("%s stays %s, which cannot be decoded: %s", msg.Quote(w.Name), w.Form, w.Reason)
		}
	}
	m.versions(a.File.Proto, b.File.Proto)
	m.defaults(a, b.File.Proto)
	if err := m.models(); err != nil {
		return nil, err
	}
	m.notCompared(c.b.Folded.Weights)
	for _, name := range slices.Sorted(maps.Keys(m.ranges)) {
		if step := m.ranges[name].Step; !(step > 0 && step <= math.MaxFloat64) {
			m.problem("the codes of %s have the scale %g", msg.Quote(name), step)
		}
	}
	m.countActivations()
	m.thin()
	return m.result, nil
}

func newMatcher(ctx context.Context, c *comparison) *matcher {
	return &matcher{
		ctx: ctx, progress: c.progress, total: c.a.Model.Graph().File.Size(),
		names: map[string]*restyle.Weight{}, seen: map[pairing]bool{},
		stored: map[string]bool{}, compared: map[string]bool{}, claimed: map[*graph.Value]*graph.Value{},
		ranges: c.b.Folded.Ranges, rangesWere: c.a.Folded.Ranges, detail: c.detail, readable: c.b.readable(), was: map[string]*recognize.Weight{},
		twin: map[*graph.Value]*graph.Value{}, steady: map[*graph.Value]bool{}, coded: map[coding]bool{},
		result: &Match{Problems: []string{}, Notes: []string{}, Weights: []WeightMatch{}},
	}
}

// likeB returns a after the changes that a conversion to b makes before it quantizes: scaled channels,
// half, a higher opset.
func (m *matcher) likeB(a, b *graph.Graph, opaque map[string]bool) (*graph.Graph, error) {
	x, err := m.likeRecord(a, b)
	if err != nil {
		return nil, err
	}
	if mayBeBalanced(provenance.Of(b.File.Proto)) {
		scaled, groups, err := balance.Like(x, b)
		if err != nil {
			return nil, err
		}
		x = scaled
		m.balanced(groups)
	}
	switch h, err := half.Like(x, b); {
	case err != nil:
		m.problem("float32 -> half: %v", err)
	case h != nil:
		m.note("%s", halfNote(h))
		m.half, m.rounds, m.result.FloatType = h.To, h.Rounds, strings.ToLower(h.To.String())
		x = h.Graph
	}
	up, err := raised(x, b.File.Proto, opaque)
	if err != nil {
		m.problem("opset %d -> %d: %v", a.Opset, b.Opset, err)
		return x, nil
	}
	return up, nil
}

// begin prepares for the two graphs that are compared.
func (m *matcher) begin(a, b *graph.Graph) {
	m.a, m.b = recognize.New(a), recognize.New(b)
	for _, f := range []*recognize.Recognizer{m.a, m.b} {
		f.Functions, f.Rearrange = true, true
	}
	m.gone, m.partner = make([]bool, a.Nodes()+1), make([]*onnxpb.NodeProto, a.Nodes()+1)
	m.fresh = make([]bool, b.Nodes()+1)
	for _, v := range a.Values {
		m.stored[keyOfValue(v)] = true
	}
}

// notCompared reports the weights of b that were compared with nothing.
func (m *matcher) notCompared(weights []restyle.Weight) {
	read := map[string]bool{}
	for _, v := range m.b.Graph.Values {
		read[keyOfValue(v)] = len(v.Uses) > 0 || v.Output || len(v.Returned()) > 0
	}
	for _, w := range weights {
		switch {
		case w.Reason != "" || m.compared[w.Became]:
		case read[w.Became]:
			m.problem("no float weight was found for %s", msg.Quote(w.Name))
		default:
			m.note("nothing reads %s", msg.Quote(w.Name))
		}
	}
}

// halfNote tells that float32 became float16 or bfloat16.
func halfNote(h *half.Model) string {
	return fmt.Sprintf("float32 -> %s: %d Casts, %d nodes stay in float32", strings.ToLower(h.To.String()), h.Casts, len(h.Kept))
}

// foldNote tells what was folded.
func (m *matcher) foldNote(c simplify.Counts) {
	if n := c.Total(); n > 0 {
		m.result.Folded = n
		m.note("%s folded: IN is folded anew, and compared after that", english.Plural(n, "node or constant is", "nodes and constants are"))
	}
}

// count counts bytes of a that were compared.
func (m *matcher) count(bytes int64) {
	const step = 1 << 20
	if m.done += bytes; m.progress != nil && m.done-m.told >= step {
		m.told = m.done
		m.progress(min(m.done, m.total), m.total)
	}
}

func (m *matcher) problem(format string, args ...any) {
	m.result.Problems = append(m.result.Problems, fmt.Sprintf(format, args...))
}

func (m *matcher) note(format string, args ...any) {
	m.result.Notes = append(m.result.Notes, fmt.Sprintf(format, args...))
}
