package evaluate

import (
	"onnxquant/internal/run/execute"
)

// memory reuses the memory of values that nobody will read. It owns the blocks that it made, while values
// lie in them; a value that leaves the run takes its block along.
type memory struct {
	free  *freeList
	owned map[*byte]*block // by their first byte
	fresh []*block         // made for the node that runs
}

// block is memory of values.
type block struct {
	data  []byte
	users int // names of values in it
}

// Blocks of less than leastBlock bytes are not worth it. Free ones have at most mostFree bytes.
const (
	leastBlock = 1 << 10
	mostFree   = 64 << 20
)

// freeList has blocks of a session.
type freeList struct {
	blocks [][]byte
	bytes  int
}

// take returns memory whose content is undefined.
func (f *freeList) take(n int) []byte {
	best := -1
	for i, b := range f.blocks {
		if cap(b) >= n && cap(b) <= 2*n && (best < 0 || cap(b) < cap(f.blocks[best])) {
			best = i
		}
	}
	if best < 0 {
		return make([]byte, n)
	}
	b, last := f.blocks[best], len(f.blocks)-1
	f.blocks[best] = f.blocks[last]
	f.blocks, f.bytes = f.blocks[:last], f.bytes-cap(b)
	return b[:n]
}

func (f *freeList) give(b []byte) {
	for f.bytes+cap(b) > mostFree && len(f.blocks) > 0 {
		f.bytes -= cap(f.blocks[0])
		f.blocks = f.blocks[1:]
	}
	if cap(b) <= mostFree {
		f.blocks, f.bytes = append(f.blocks, b), f.bytes+cap(b)
	}
}

// make returns n bytes whose content is undefined.
func (m *memory) make(n int) []byte {
	if n < leastBlock {
		return make([]byte, n)
	}
	b := &block{data: m.free.take(n)}
	m.owned[&b.data[0]] = b
	m.fresh = append(m.fresh, b)
	return b.data
}

// of returns the block of a value, or nil.
func (m *memory) of(t *execute.Tensor) *block {
	if t == nil || len(t.Data) == 0 {
		return nil
	}
	return m.owned[&t.Data[0]]
}

// use notes a name of a value. Elements of sequences are no longer owned.
func (m *memory) use(t *execute.Tensor) {
	if b := m.of(t); b != nil {
		b.users++
	}
	if t != nil {
		for _, item := range t.List {
			m.leave(item)
		}
	}
}

// drop takes a name of a value away.
func (m *memory) drop(t *execute.Tensor) {
	if b := m.of(t); b != nil {
		b.users--
		m.reuse(b)
	}
}

// leave gives up the block of a value.
func (m *memory) leave(t *execute.Tensor) {
	if b := m.of(t); b != nil {
		delete(m.owned, &b.data[0])
	}
}

// reuse frees a block without users.
func (m *memory) reuse(b *block) {
	if first := &b.data[0]; b.users == 0 && m.owned[first] == b {
		delete(m.owned, first)
		m.free.give(b.data)
	}
}

// begin and end enclose a node. Blocks that no value took are free afterwards.
func (m *memory) begin() (before []*block) {
	before, m.fresh = m.fresh, nil
	return before
}

func (m *memory) end(before []*block) {
	for _, b := range m.fresh {
		m.reuse(b)
	}
	m.fresh = before
}
