package gradient

import (
	"math"
	"slices"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// set is a set of names of values.
type set map[string]bool

func newSet(names []string) set {
	s := set{}
	s.add(names...)
	return s
}

func (s set) add(names ...string) {
	for _, name := range names {
		if name != "" {
			s[name] = true
		}
	}
}

func (s set) has(name string) bool { return s[name] }

// values says what is known of the values of a graph before it runs.
type values struct {
	tensors  set // whose gradients are wanted
	active   set // depend on the tensors whose gradients are wanted
	depends  set // depend on an input of the graph or an active value
	maker    map[string]int
	lastRead map[string]int // the last node that reads a value; the number of nodes for an output of the graph
}

func newValues(m *Model, tensors []string) *values {
	v := &values{tensors: newSet(tensors), active: newSet(tensors), depends: newSet(tensors), maker: map[string]int{}, lastRead: map[string]int{}}
	stored := set{}
	for _, t := range m.session.Graph().GetInitializer() {
		stored.add(t.GetName())
	}
	for _, in := range m.session.Graph().GetInput() {
		if !stored.has(in.GetName()) {
			v.depends.add(in.GetName())
		}
	}
	for i, n := range m.nodes {
		for _, name := range n.Reads {
			v.lastRead[name] = i
		}
		for _, name := range n.Output {
			v.maker[name] = i
		}
		if slices.ContainsFunc(n.Reads, v.active.has) && !flat[key(n.NodeProto)] {
			v.active.add(n.Output...)
		}
		if slices.ContainsFunc(n.Reads, v.depends.has) {
			v.depends.add(n.Output...)
		}
	}
	for _, name := range m.outputs {
		v.lastRead[name] = len(m.nodes)
	}
	return v
}

// crosses reports whether a value is kept if it crosses a cut. Others are computed again.
func (v *values) crosses(name string) bool { return v.depends.has(name) && !v.tensors.has(name) }

// stage is a part of the graph: some nodes in sequence.
type stage struct {
	from, to int
	weights  []int    // tensors that it reads
	exit     []string // values that it makes and later stages, or the caller, read
	done     []string // values that no stage behind reads
	tape     []string // values that the rules of its nodes need
}

// cut divides the graph into stages, for a step of several samples such as the first one.
func (m *Model) cut(first []*execute.Tensor, samples int) error {
	known := map[string]*execute.Tensor{}
	for _, t := range first {
		if t != nil {
			known[t.Name] = t
		}
	}
	if _, err := m.session.Part(known, m.outputs); err != nil {
		return err
	}
	ends := m.ends(m.session.Sizes(), samples)
	from := 0
	for _, to := range ends {
		m.stages = append(m.stages, m.stage(from, to))
		from = to
	}
	m.finish()
	return nil
}

// finish finds out which values no stage behind reads.
func (m *Model) finish() {
	for i, g := range m.stages[:len(m.stages)-1] {
		for _, before := range m.stages[:i+1] {
			for _, name := range before.exit {
				if v := m.values.lastRead[name]; v >= g.from && v < g.to {
					g.done = append(g.done, name)
				}
			}
		}
	}
}

// stage describes the stage of some nodes.
func (m *Model) stage(from, to int) *stage {
	g := &stage{from: from, to: to}
	reads, tape := set{}, set{}
	for _, n := range m.nodes[from:to] {
		reads.add(n.Reads...)
		if slices.ContainsFunc(n.Input, m.values.active.has) && !flat[key(n.NodeProto)] {
			tape.add(n.Input...)
			tape.add(n.Output...)
		}
		for _, name := range n.Output {
			if m.values.lastRead[name] >= to && m.values.crosses(name) {
				g.exit = append(g.exit, name)
			}
		}
	}
	if to == len(m.nodes) {
		for _, name := range m.outputs {
			if m.values.maker[name] >= from && m.values.active.has(name) {
				tape.add(name)
			}
		}
	}
	for i, name := range m.names {
		if reads.has(name) {
			g.weights = append(g.weights, i)
		}
	}
	for name := range tape {
		g.tape = append(g.tape, name)
	}
	slices.Sort(g.tape)
	return g
}

// ends chooses the ends of stages. The memory of the largest stage, and that of the values that cross cuts, for all
// samples, shall be small together. sizes has the bytes of the values of a sample.
func (m *Model) ends(sizes map[string]int64, samples int) []int {
	n := len(m.nodes)
	inside := make([]int64, n+1)   // sum of the bytes of the nodes before
	crossing := make([]int64, n+1) // bytes of the values that cross the cut before a node
	tensors := map[string]int64{}
	for i, t := range m.tensors {
		tensors[m.names[i]] = 8 * op.Product(t.GetDims()) // elements and gradients
	}
	for i, node := range m.nodes {
		inside[i+1] = inside[i]
		for _, name := range node.Reads {
			inside[i+1] += tensors[name]
		}
		for _, name := range node.Output {
			inside[i+1] += 2 * sizes[name] // and gradients
			if !m.values.crosses(name) {
				continue
			}
			if last := m.values.lastRead[name]; last > i {
				crossing[i+1] += sizes[name]
				if last < n {
					crossing[last+1] -= sizes[name]
				}
			}
		}
	}
	for i := range n {
		crossing[i+1] += crossing[i]
	}
	best, least := []int{n}, inside[n]
	for limit := inside[n] / 2; limit > 0; limit /= 2 {
		cuts, sum := cheapest(inside, crossing, limit)
		if cuts == nil {
			break
		}
		if memory := limit + int64(samples)*sum; memory < least {
			best, least = cuts, memory
		}
	}
	return best
}

// cheapest returns the ends of stages of at most limit bytes with the least bytes that cross them, and the sum of
// these; nil if a node alone has more.
func cheapest(inside, crossing []int64, limit int64) (ends []int, sum int64) {
	n := len(inside) - 1
	cost, from := make([]int64, n+1), make([]int, n+1)
	for i := 1; i <= n; i++ {
		cost[i] = math.MaxInt64
		for j := i - 1; j >= 0 && inside[i]-inside[j] <= limit; j-- {
			if cost[j] < math.MaxInt64 && cost[j]+crossing[j] < cost[i] {
				cost[i], from[i] = cost[j]+crossing[j], j
			}
		}
	}
	if cost[n] == math.MaxInt64 {
		return nil, 0
	}
	for i := n; i > 0; i = from[i] {
		ends = append(ends, i)
	}
	slices.Reverse(ends)
	return ends, cost[n]
}
