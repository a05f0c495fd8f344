package onnxq

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sync"
	"time"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq/recognize"
	"onnxquant/onnxq/spec"
)

// RewriteOptions say how a model is written whose weights take another form. The
// zero value of a field means the default named beside it.
type RewriteOptions struct {
	ExternalData spec.ExternalData // default ExternalAuto
	Threads      int               // default: the number of CPUs
	Memory       int64             // bytes of buffers for tensors, shared by the threads; default 64 MiB
	NoVerify     bool              // do not reopen and compare what was written

	// Progress, if set, is told the bytes written so far and the total. Calls come
	// from one goroutine at a time.
	Progress func(done, total int64)
}

func (o RewriteOptions) withDefaults() (RewriteOptions, error) {
	all, err := Options{ExternalData: o.ExternalData, Threads: o.Threads, Memory: o.Memory}.withDefaults()
	o.ExternalData, o.Memory = all.ExternalData, all.Memory
	return o, err
}

// RewrittenWeight is a quantized weight of the input and what became of it.
type RewrittenWeight struct {
	*recognize.Weight
	Became   string `json:"became,omitempty"` // name of the value that operators read now
	NewForm  string `json:"new_form"`         // "float", or the operators that decode it; as it was if not Changed
	OutBytes int64  `json:"out_bytes"`        // of all it is stored in
	Changed  bool   `json:"changed"`
	Reason   string `json:"reason,omitempty"` // why it stays as it was, unless that was asked for
}

// RewriteReport tells what became of the quantized weights of a model.
type RewriteReport struct {
	Weights  []RewrittenWeight `json:"weights"`
	InBytes  int64             `json:"in_bytes"` // model file and external data
	OutBytes int64             `json:"out_bytes"`
	Output   string            `json:"output"`
	Data     string            `json:"data,omitempty"` // external data file, if any
	Verified bool              `json:"verified"`       // reopened and compared
	Elapsed  time.Duration     `json:"elapsed_ns"`
}

// rebuild is a model some of whose weights take another form.
type rebuild struct {
	output
	model     *Model
	opts      RewriteOptions
	names     *graph.Names
	consumers *consumers
	original  map[*onnxpb.TensorProto]*onnxpb.TensorProto
	copied    map[*onnxpb.TensorProto]*onnxpb.TensorProto // the other way
	graphs    map[*onnxpb.GraphProto]*onnxpb.GraphProto   // copies of the input's graphs
	builders  map[*onnxpb.GraphProto]*builder             // of what is added to the copies
	replaced  []*recognize.Weight
	unfolded  map[*onnxpb.FunctionProto]bool // functions of the input in which weights were
	made      map[*onnxpb.TensorProto]bool
	fills     []fill
	packed    map[*onnxpb.TensorProto]packing
	renamed   map[string]string // new tensors that got a name which became free
}

// fill makes a part of a tensor's content. Fills may run in any order.
type fill struct {
	bytes  int64
	tensor *onnxpb.TensorProto
	write  func(b *buffers, to place) error
}

// place is where the content of a tensor goes: its bytes, or codes below a byte.
type place struct {
	io.WriterAt
	codes *packedWriter
}

func (m *Model) newRebuild(opts RewriteOptions) *rebuild {
	copied, original := m.clone()
	r := &rebuild{
		output:    output{proto: copied},
		model:     m,
		opts:      opts,
		names:     m.index.NewNames(),
		consumers: newConsumers(m.index, m.file.Proto, copied),
		original:  original,
		copied:    map[*onnxpb.TensorProto]*onnxpb.TensorProto{},
		graphs:    map[*onnxpb.GraphProto]*onnxpb.GraphProto{},
		builders:  map[*onnxpb.GraphProto]*builder{},
		unfolded:  map[*onnxpb.FunctionProto]bool{},
		made:      map[*onnxpb.TensorProto]bool{},
		packed:    map[*onnxpb.TensorProto]packing{},
		renamed:   map[string]string{},
	}
	for c, t := range original {
		r.copied[t] = c
	}
	var copies []*onnxpb.GraphProto
	graph.WalkGraphs(copied.Graph, func(g *onnxpb.GraphProto) { copies = append(copies, g) })
	i := 0
	graph.WalkGraphs(m.file.Proto.Graph, func(g *onnxpb.GraphProto) {
		r.graphs[g] = copies[i]
		i++
	})
	return r
}

// builder returns the one for what is added beside a weight.
func (r *rebuild) builder(w *recognize.Weight) *builder {
	g := r.graphs[w.Graph]
	b := r.builders[g]
	if b == nil {
		b = &builder{domain: r.consumers.domain, fresh: r.names.Fresh}
		r.builders[g] = b
	}
	return b
}

// tensor adds a tensor whose content fills will make.
func (r *rebuild) tensor(b *builder, name string, typ dtype.DType, shape []int64) *onnxpb.TensorProto {
	t := b.tensor(name, typ, shape)
	r.made[t] = true
	return t
}

// finish completes the structure, once every weight has been replaced: at an
// opset of at least need, without what nothing reads any more.
func (r *rebuild) finish(need int64) error {
	freed := r.sweep()
	r.sweepFunctions()
	r.consumers.finish(r.proto)
	r.dropImport()
	if err := r.model.inline(r.original, func(*onnxpb.TensorProto) bool { return false }); err != nil {
		return err
	}
	if err := raise(r.proto, need, r.names.Fresh, nil); err != nil {
		return err
	}
	graph.WalkGraphs(r.proto.Graph, func(g *onnxpb.GraphProto) {
		if b := r.builders[g]; b != nil {
			g.Initializer = append(g.Initializer, b.tensors...)
			g.Node = append(b.nodes, g.Node...)
		}
		if nodes, err := graph.Ordered(g.Node); err == nil { // the input has been checked
			g.Node = nodes
		}
	})
	r.rename(freed)
	if len(r.made) > 0 {
		r.proto.IrVersion = new(max(r.proto.GetIrVersion(), 4)) // initializers need not be inputs
	}
	return r.collect(r.model, r.original, r.made)
}

// sweep removes the nodes and tensors of replaced weights that nothing reads.
func (r *rebuild) sweep() (freed map[string]bool) {
	reads := map[string]int{}
	count := func(n *onnxpb.NodeProto, by int) {
		for _, name := range n.Input {
			reads[name] += by
		}
	}
	graph.WalkGraphs(r.proto.Graph, func(g *onnxpb.GraphProto) {
		for _, o := range g.Output {
			reads[o.GetName()]++
		}
		for _, n := range g.Node {
			if !r.consumers.gone[n] {
				count(n, 1)
			}
			for _, behind := range r.consumers.behind[n] {
				count(behind, 1)
			}
		}
	})
	for _, b := range r.builders {
		for _, n := range b.nodes {
			count(n, 1)
		}
	}
	dead := map[*onnxpb.TensorProto]bool{}
	var visit func(v *graph.Value)
	visit = func(v *graph.Value) {
		if v == nil || reads[v.Name] > 0 || v.Output {
			return
		}
		if v.Tensor != nil {
			dead[r.copied[v.Tensor]] = true
		}
		if v.Node == nil {
			return
		}
		if n := r.consumers.copies[v.Node]; !r.consumers.gone[n] {
			r.consumers.gone[n] = true
			count(n, -1)
		}
		for i := range v.Node.Input {
			visit(r.model.index.Source(v.Node, i))
		}
	}
	for _, w := range r.replaced {
		for _, n := range w.Nodes {
			for i := range n.Input {
				visit(r.model.index.Source(n, i))
			}
		}
	}
	graph.WalkGraphs(r.proto.Graph, func(g *onnxpb.GraphProto) {
		inputs := map[string]bool{} // up to IR 3, initializers are inputs too
		g.Initializer = slices.DeleteFunc(g.Initializer, func(t *onnxpb.TensorProto) bool {
			inputs[t.GetName()] = dead[t]
			return dead[t]
		})
		g.Input = slices.DeleteFunc(g.Input, func(in *onnxpb.ValueInfoProto) bool { return inputs[in.GetName()] })
	})
	freed = map[string]bool{}
	for t := range dead {
		freed[t.GetName()] = true
	}
	return freed
}

// rename gives new tensors the names they would have had, had those of the
// tensors they replace been free.
func (r *rebuild) rename(freed map[string]bool) {
	graph.WalkGraphs(r.proto.Graph, func(g *onnxpb.GraphProto) {
		for _, t := range g.Initializer {
			if hint := numbered.ReplaceAllString(t.GetName(), ""); r.made[t] && freed[hint] && hint != t.GetName() && !r.model.index.Names[t.GetName()] {
				r.renamed[t.GetName()], freed[hint] = hint, false
				t.Name = &hint
			}
		}
	})
	graph.WalkGraphs(r.proto.Graph, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			for i, name := range n.Input {
				if new, ok := r.renamed[name]; ok {
					n.Input[i] = new
				}
			}
		}
	})
}

// numbered is what makes a name fresh.
var numbered = regexp.MustCompile(`_[0-9]+$`)

// dropImport removes the import of com.microsoft's operators if the last of them
// is gone.
func (r *rebuild) dropImport() {
	if len(r.replaced) == 0 {
		return
	}
	used := false
	contrib := func(n *onnxpb.NodeProto) { used = used || n.GetDomain() == graph.Contrib }
	graph.WalkGraphs(r.proto.Graph, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			contrib(n)
		}
	})
	for _, f := range r.proto.Functions {
		for _, n := range f.Node {
			contrib(n)
		}
	}
	if !used {
		r.proto.OpsetImport = slices.DeleteFunc(r.proto.OpsetImport, func(o *onnxpb.OperatorSetIdProto) bool { return o.GetDomain() == graph.Contrib })
	}
}

// write writes the model.
func (r *rebuild) write(ctx context.Context, out string) (*RewriteReport, error) {
	if err := r.place(r.opts.ExternalData); err != nil {
		return nil, err
	}
	if r.external() {
		if err := r.encode(dataName(out)); err != nil {
			return nil, err
		}
	}
	target, err := modelfile.CreateTarget(ctx, out, r.model.file, r.external())
	if err != nil {
		return nil, err
	}
	defer target.Abort()
	r.copies()
	if err := r.fill(ctx, target); err != nil {
		return nil, fmt.Errorf("%s: %w", out, err)
	}
	if !r.opts.NoVerify {
		if err := r.compare(ctx, target); err != nil {
			return nil, fmt.Errorf("%s: %w", out, err)
		}
	}
	if err := target.Commit(r.relocate); err != nil {
		return nil, err
	}
	report := &RewriteReport{InBytes: r.model.Size(), OutBytes: r.size(), Output: out, Verified: !r.opts.NoVerify}
	if r.external() {
		report.Data = modelfile.DataPath(out)
	}
	return report, nil
}

// copies adds the fills of what is copied from the input.
func (r *rebuild) copies() {
	for i, c := range r.contents {
		if c.copy == nil {
			continue
		}
		for off := int64(0); off < c.size; off += copySize {
			n := min(copySize, c.size-off)
			r.fills = append(r.fills, fill{n, r.tensors[i], func(b *buffers, to place) error {
				raw := buffer.Grow(&b.raw, n)
				if err := buffer.ReadFull(c.copy, raw, off); err != nil {
					return err
				}
				_, err := to.WriteAt(raw, off)
				return err
			}})
		}
	}
}

// fill writes the contents.
func (r *rebuild) fill(ctx context.Context, target *modelfile.Target) error {
	sinks, err := r.begin(target)
	if err != nil {
		return err
	}
	places := r.places(func(t *onnxpb.TensorProto) io.WriterAt { return sinks[t] })
	return r.each(ctx, places, r.opts.Progress)
}

// compare makes the contents once more, and compares them with what was written.
func (r *rebuild) compare(ctx context.Context, target *modelfile.Target) error {
	m, payloads, err := r.reopen(target)
	if err != nil {
		return err
	}
	defer m.Close()
	places := r.places(func(t *onnxpb.TensorProto) io.WriterAt { return comparer{payloads[t], t.GetName()} })
	return r.each(ctx, places, nil)
}

func (r *rebuild) places(where func(*onnxpb.TensorProto) io.WriterAt) map[*onnxpb.TensorProto]place {
	places := map[*onnxpb.TensorProto]place{}
	for _, t := range r.tensors {
		p := place{WriterAt: where(t)}
		if l, ok := r.packed[t]; ok {
			p.codes = &packedWriter{w: p.WriterAt, packing: l}
		}
		places[t] = p
	}
	return places
}

// each runs the fills.
func (r *rebuild) each(ctx context.Context, places map[*onnxpb.TensorProto]place, progress func(done, total int64)) error {
	var mu sync.Mutex
	done, total := int64(0), int64(0)
	for _, f := range r.fills {
		total += f.bytes
	}
	n, _ := workers(r.opts.Threads, r.opts.Memory)
	return eachTask(ctx, n, len(r.fills), func(b *buffers, i int) error {
		f := r.fills[i]
		if err := f.write(b, places[f.tensor]); err != nil {
			return err
		}
		if progress != nil {
			mu.Lock()
			defer mu.Unlock()
			done += f.bytes
			progress(done, total)
		}
		return nil
	})
}

// comparer takes what has been written already and compares it.
type comparer struct {
	written *modelfile.Payload
	name    string
}

func (c comparer) WriteAt(b []byte, off int64) (int, error) {
	have := make([]byte, len(b))
	if err := buffer.ReadFull(c.written, have, off); err != nil {
		return 0, err
	}
	if !bytes.Equal(have, b) {
		return 0, fmt.Errorf("%w: %s differs from what was written", ErrVerify, msg.Quote(c.name))
	}
	return len(b), nil
}

// tileSide is that of the squares in which matrices are turned.
const tileSide = 1024

// square is a part of a matrix of cols elements a row: all of some rows, or a
// square.
type square struct{ row, rows, col, cols int64 }

// squares cuts a matrix of rows × cols elements.
func squares(rows, cols, limit int64) []square {
	var list []square
	width := min(cols, tileSide)
	height := max(limit/max(width, 1), 1)
	for c := int64(0); c < cols; c += width {
		for r := int64(0); r < rows; r += height {
			list = append(list, square{r, min(height, rows-r), c, min(width, cols-c)})
		}
	}
	return list
}

// readSquare reads a part of a matrix of width elements a row.
func readSquare[T any](dst []T, s square, width int64, read func(dst []T, off int64) error) error {
	if s.cols == width {
		return read(dst, s.row*width)
	}
	for i := range s.rows {
		if err := read(dst[i*s.cols:(i+1)*s.cols], (s.row+i)*width+s.col); err != nil {
			return err
		}
	}
	return nil
}

// fillFloats makes a tensor of the numbers of a matrix rows × cols, or of its
// transpose.
func (r *rebuild) fillFloats(t *onnxpb.TensorProto, x *lazy.Tensor, rows, cols int64, turned bool) {
	typ := dtype.DType(t.GetDataType())
	size := typ.Bits() / 8
	if !turned {
		n := rows * cols
		for off := int64(0); off < n; off += lazy.LongestRead {
			part := min(lazy.LongestRead, n-off)
			r.fills = append(r.fills, fill{part * size, t, func(b *buffers, to place) error {
				dst := buffer.Grow(&b.x, part)
				if err := x.ReadAll(&b.arena, dst, off); err != nil {
					return err
				}
				raw := buffer.Grow(&b.raw, part*size)
				typ.Encode(raw, dst)
				_, err := to.WriteAt(raw, off*size)
				return err
			}})
		}
		return
	}
	for _, s := range squares(rows, cols, r.tileLimit()) {
		r.fills = append(r.fills, fill{s.rows * s.cols * size, t, func(b *buffers, to place) error {
			src, dst := buffer.Grow(&b.x, s.rows*s.cols), buffer.Grow(&b.decoded, s.rows*s.cols)
			err := readSquare(src, s, cols, func(dst []float32, off int64) error { return x.ReadAll(&b.arena, dst, off) })
			if err != nil {
				return err
			}
			transpose(dst, src, int(s.rows), int(s.cols))
			for c := range s.cols {
				raw := buffer.Grow(&b.raw, s.rows*size)
				typ.Encode(raw, dst[c*s.rows:(c+1)*s.rows])
				if _, err := to.WriteAt(raw, ((s.col+c)*rows+s.row)*size); err != nil {
					return err
				}
			}
			return nil
		}})
	}
}

// codeMatrix is a matrix of codes that can be read anywhere.
type codeMatrix struct {
	rows, cols int64
	read       func(a *lazy.Arena, q []byte, off int64) error
}

func gridMatrix(g *lazy.Grid) codeMatrix { return codeMatrix{g.Rows, g.Cols, g.Read} }

// codeMatrix reads numbers that are codes.
func matrixOf(x *lazy.Tensor, rows, cols int64) codeMatrix {
	return codeMatrix{rows, cols, func(a *lazy.Arena, q []byte, off int64) error {
		v, release := a.Float32s(len(q))
		defer release()
		if err := x.ReadAll(a, v, off); err != nil {
			return err
		}
		for i, c := range v {
			q[i] = byte(int(c))
		}
		return nil
	}}
}

// fillCodes makes a tensor of the codes of a matrix, or of its transpose, each
// less middle. Rows of the tensor are pitch codes apart; 0: they lie together.
func (r *rebuild) fillCodes(t *onnxpb.TensorProto, m codeMatrix, bits int, middle byte, turned bool, pitch int64) {
	at := stored{outer: m.rows, k: m.cols, inner: 1, pitch: pitch}
	if turned {
		at.outer, at.k = m.cols, m.rows
	}
	at.pitch = cmp.Or(pitch, at.k)
	r.packed[t] = packing{bits, at}
	read := func(b *buffers) func(q []byte, off int64) error {
		return func(q []byte, off int64) error {
			if err := m.read(&b.arena, q, off); err != nil {
				return err
			}
			for i := range q {
				q[i] -= middle
			}
			return nil
		}
	}
	cost := func(n int64) int64 { return (n*int64(bits) + 7) / 8 }
	if !turned && at.pitch == at.k {
		n := m.rows * m.cols
		for off := int64(0); off < n; off += lazy.LongestRead {
			part := min(lazy.LongestRead, n-off)
			r.fills = append(r.fills, fill{cost(part), t, func(b *buffers, to place) error {
				q := buffer.Grow(&b.q, part)
				if err := read(b)(q, off); err != nil {
					return err
				}
				return to.codes.write(buffer.Grow(&b.packed, part), q, off, new(uint32))
			}})
		}
		return
	}
	for _, s := range squares(m.rows, m.cols, r.tileLimit()) {
		r.fills = append(r.fills, fill{cost(s.rows * s.cols), t, func(b *buffers, to place) error {
			q := buffer.Grow(&b.zero, s.rows*s.cols)
			if err := readSquare(q, s, m.cols, read(b)); err != nil {
				return err
			}
			d := s // where it goes
			if turned {
				q = buffer.Grow(&b.q, s.rows*s.cols)
				transpose(q, b.zero, int(s.rows), int(s.cols))
				d = square{s.col, s.cols, s.row, s.rows}
			}
			for i := range d.rows {
				if err := to.codes.write(buffer.Grow(&b.packed, d.cols), q[i*d.cols:(i+1)*d.cols], (d.row+i)*at.pitch+d.col, new(uint32)); err != nil {
					return err
				}
			}
			return nil
		}})
	}
}

// tileLimit is the number of elements that are turned at a time.
func (r *rebuild) tileLimit() int64 {
	_, limit := workers(r.opts.Threads, r.opts.Memory)
	return min(limit, tileSide*tileSide)
}
