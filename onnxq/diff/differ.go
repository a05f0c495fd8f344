package diff

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"onnxquant/formats/dtype"
	"onnxquant/internal/balance"
	"onnxquant/internal/buffer"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/provenance"
	"onnxquant/internal/written"
)

// differ compares two messages of the same type, field by field.
type differ struct {
	ctx    context.Context
	a, b   *modelfile.Model
	bufs   [2][]byte
	result *Difference

	progress func(done, total int64)
	done     int64 // bytes of tensors that were compared
}

// records are the places of the records of conversions.
var records = []string{fmt.Sprintf("metadata_prop %s", msg.Quote(provenance.Key)), fmt.Sprintf("metadata_prop %s", msg.Quote(balance.Key)), fmt.Sprintf("metadata_prop %s", msg.Quote(written.Key))}

// add adds a change, unless it is in a record of conversions, which is not part of the model's
// function.
func (d *differ) add(c Change) {
	if slices.Contains(records, c.Where) {
		return
	}
	if c.Where == "" {
		c.Where = "model"
	}
	d.result.Changes = append(d.result.Changes, c)
}

func (d *differ) message(where string, x, y protoreflect.Message) error {
	switch a := x.Interface().(type) {
	case *onnxpb.TensorProto:
		return d.tensor(where, a, y.Interface().(*onnxpb.TensorProto))
	case *onnxpb.TypeProto:
		if b := y.Interface().(*onnxpb.TypeProto); !proto.Equal(a, b) {
			d.add(Change{Kind: Changed, Where: where, Field: "type", A: graph.TypeText(a), B: graph.TypeText(b)})
		}
		return nil
	}
	fields := x.Descriptor().Fields()
	for i := range fields.Len() {
		if err := d.field(where, fields.Get(i), x, y); err != nil {
			return err
		}
	}
	d.unknown(where, x, y)
	return nil
}

// unknown compares the fields that the ONNX schema does not have.
func (d *differ) unknown(where string, x, y protoreflect.Message) {
	if a, b := x.GetUnknown(), y.GetUnknown(); !bytes.Equal(a, b) {
		d.add(Change{Kind: Changed, Where: where, Field: "unknown fields", A: sizeText(len(a)), B: sizeText(len(b))})
	}
}

func (d *differ) field(where string, f protoreflect.FieldDescriptor, x, y protoreflect.Message) error {
	if !x.Has(f) && !y.Has(f) {
		return nil
	}
	a, b := x.Get(f), y.Get(f)
	switch {
	case f.IsList() && f.Message() != nil:
		return d.list(where, f, a.List(), b.List())
	case f.Message() == nil:
		if !a.Equal(b) {
			d.add(Change{Kind: Changed, Where: where, Field: string(f.Name()), A: valueText(f, a), B: valueText(f, b)})
		}
		return nil
	}
	part := where
	if f.Name() != "graph" && f.Name() != "g" && f.Name() != "type" && f.Name() != "t" {
		part = join(where, string(f.Name()))
	}
	switch {
	case !y.Has(f):
		d.add(Change{Kind: Removed, Where: where, Field: string(f.Name()), A: summary(a.Message())})
	case !x.Has(f):
		d.add(Change{Kind: Added, Where: where, Field: string(f.Name()), B: summary(b.Message())})
	default:
		return d.message(part, a.Message(), b.Message())
	}
	return nil
}

// list compares two lists of messages, matched by key.
func (d *differ) list(where string, f protoreflect.FieldDescriptor, x, y protoreflect.List) error {
	kind := strings.TrimSuffix(string(f.Name()), "s")
	count := d.counter(where, f)
	count.A, count.B = x.Len(), y.Len()
	xs, ys := keys(x), keys(y)
	place := make(map[key]int, len(ys))
	for i, k := range ys {
		place[k] = i
	}
	matched := make([]bool, len(ys))
	last, moved := -1, 0
	for i, k := range xs {
		m := x.Get(i).Message()
		part := join(where, kind+k.text()+operator(m))
		j, ok := place[k]
		if !ok {
			d.add(Change{Kind: Removed, Where: part, A: summary(m)})
			continue
		}
		matched[j] = true
		if j < last {
			moved++
		}
		last = max(last, j)
		before := len(d.result.Changes)
		if err := d.message(part, m, y.Get(j).Message()); err != nil {
			return err
		}
		if len(d.result.Changes) == before {
			count.Equal++
		}
	}
	for j, k := range ys {
		if !matched[j] {
			m := y.Get(j).Message()
			d.add(Change{Kind: Added, Where: join(where, kind+k.text()+operator(m)), B: summary(m)})
		}
	}
	if moved > 0 {
		d.add(Change{Kind: Moved, Where: where, Field: string(f.Name()), A: fmt.Sprintf("%d of %d stand elsewhere in the list", moved, len(xs))})
	}
	return nil
}

// counter returns the Count for a field of the main graph, or a dummy.
func (d *differ) counter(where string, f protoreflect.FieldDescriptor) *Count {
	if where == "" && f.ContainingMessage().Name() == "GraphProto" {
		switch f.Name() {
		case "node":
			return &d.result.Nodes
		case "initializer":
			return &d.result.Initializers
		case "input":
			return &d.result.Inputs
		case "output":
			return &d.result.Outputs
		}
	}
	return &Count{}
}

// operator formats the operator of a node.
func operator(m protoreflect.Message) string {
	if n, ok := m.Interface().(*onnxpb.NodeProto); ok {
		return " (" + msg.Clean(n.GetOpType()) + ")"
	}
	return ""
}

// tensor compares two tensors. The structure in memory has no contents except strings.
func (d *differ) tensor(where string, x, y *onnxpb.TensorProto) error {
	a, b := tensorText(x), tensorText(y)
	switch {
	case a != b || !slices.Equal(x.Dims, y.Dims):
		d.add(Change{Kind: Changed, Where: where, Field: "tensor", A: a, B: b})
	case dtype.DType(x.GetDataType()) == dtype.String:
		if !slices.EqualFunc(x.StringData, y.StringData, bytes.Equal) {
			d.add(Change{Kind: Changed, Where: where, Field: "contents", A: a, B: b, Contents: true})
		}
	default:
		off, err := d.contents(x, y)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		if off >= 0 {
			d.add(Change{Kind: Changed, Where: where, Field: "contents", A: a, B: fmt.Sprintf("different from byte %d on", off), Contents: true})
		}
	}
	fields := x.ProtoReflect().Descriptor().Fields()
	for _, name := range []protoreflect.Name{"name", "doc_string", "metadata_props"} {
		if err := d.field(where, fields.ByName(name), x.ProtoReflect(), y.ProtoReflect()); err != nil {
			return err
		}
	}
	d.unknown(where, x.ProtoReflect(), y.ProtoReflect())
	return nil
}

// contents returns the offset of the first byte that differs, or -1.
func (d *differ) contents(x, y *onnxpb.TensorProto) (int64, error) {
	p, err := d.a.Payload(x)
	if err != nil {
		return 0, err
	}
	q, err := d.b.Payload(y)
	if err != nil {
		return 0, err
	}
	const stretch = 1 << 20
	for off := int64(0); off < p.Size(); off += stretch {
		if err := d.ctx.Err(); err != nil {
			return 0, context.Cause(d.ctx)
		}
		n := min(stretch, p.Size()-off)
		if d.done += n; d.progress != nil {
			d.progress(min(d.done, d.a.Size()), d.a.Size())
		}
		a, b := buffer.Grow(&d.bufs[0], n), buffer.Grow(&d.bufs[1], n)
		if err := buffer.ReadFull(p, a, off); err != nil {
			return 0, err
		}
		if err := buffer.ReadFull(q, b, off); err != nil {
			return 0, err
		}
		if !bytes.Equal(a, b) {
			for i := range a {
				if a[i] != b[i] {
					return off + int64(i), nil
				}
			}
		}
	}
	return -1, nil
}
