package checkpoint

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// GPTQ's act-order gives scales to groups of indices of K that do not follow each other. Blocks do. So the weight gets its
// indices group by group, and a Gather puts the channels of the other operand into the same order: the products and their
// sums are the same.

// byGroup returns the indices group by group, or nil unless all groups but the last have size indices.
func byGroup(groups []float32, size int64) []int32 {
	list := make([]int32, len(groups))
	for i := range list {
		list[i] = int32(i)
	}
	slices.SortStableFunc(list, func(a, b int32) int { return int(groups[a]) - int(groups[b]) })
	for i, at := range list {
		if int64(groups[at]) != int64(i)/size {
			return nil
		}
	}
	return list
}

// orderOf returns the order that all pieces have in common, or nil.
func orderOf(parts []piece) (order []int32) {
	for i, p := range parts {
		if p.codes == nil || p.codes.order == nil || i > 0 && !slices.Equal(p.codes.order, order) {
			return nil
		}
		order = p.codes.order
	}
	return order
}

// inGroups returns the pieces with their indices of K in their order.
func inGroups(parts []piece) (list []piece) {
	for _, p := range parts {
		q := *p.codes // laid [K,N]
		q.loose, q.why = nil, ""
		q.codes = lazy.Stored(q.codes.DType, q.codes.Shape, &rowsOf{q.codes.Stored, q.order, q.n})
		list = append(list, piece{name: p.name, codes: &q})
	}
	return list
}

// rowsOf reads rows of bytes in another order.
type rowsOf struct {
	r     io.ReaderAt
	order []int32
	width int64
}

func (r *rowsOf) ReadAt(dst []byte, off int64) (done int, err error) {
	for done < len(dst) {
		row, col := (off+int64(done))/r.width, (off+int64(done))%r.width
		if row >= int64(len(r.order)) {
			return done, io.EOF
		}
		run := dst[done:min(int64(len(dst)), int64(done)+r.width-col)]
		if err := buffer.ReadFull(r.r, run, int64(r.order[row])*r.width+col); err != nil {
			return done, err
		}
		done += len(run)
	}
	return done, nil
}

// onlyProducts reports whether only MatMul and Gemm of the main graph read a value, as the weight.
func onlyProducts(x *graph.Graph, v *graph.Value) bool {
	for _, u := range v.Uses {
		op, home := u.Node.GetOpType(), x.Home(u.Node)
		gemm := op == "Gemm" && graph.IntAttribute(u.Node, "transA") == 0
		if u.Input != 1 || op != "MatMul" && !gemm || u.Node.GetDomain() != "" || home == nil || home.Graph != x.File.Proto.Graph {
			return false
		}
	}
	return len(v.Uses) > 0 && !v.Output && len(v.Tensor.GetDims()) == 2 && x.Scope(x.File.Proto.Graph) != nil
}

// reordered returns the graph in which a Gather puts the channels of activations into the order of the weights that
// multiply them.
func reordered(x *graph.Graph, orders map[*graph.Value][]int32) (*graph.Graph, error) {
	c := x.Copy()
	initializers, gathered := map[string]string{}, map[string]string{}
	for _, v := range x.Values {
		order, ok := orders[v]
		if !ok {
			continue
		}
		raw := make([]byte, 0, 4*len(order))
		for _, i := range order {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(i))
		}
		indices, ok := initializers[string(raw)]
		if !ok {
			indices = c.Names.Fresh(v.Name + "_order")
			initializers[string(raw)] = indices
			c.Proto.Graph.Initializer = append(c.Proto.Graph.Initializer, &onnxpb.TensorProto{
				Name: proto.String(indices), DataType: proto.Int32(int32(dtype.Int32)), Dims: []int64{int64(len(order))}, RawData: raw,
			})
		}
		for _, u := range v.Uses {
			n := c.Node(u.Node)
			key := fmt.Sprintf("%q %q", n.Input[0], indices)
			if gathered[key] == "" {
				gathered[key] = c.Names.Fresh(n.Input[0] + "_ordered")
				gather := &onnxpb.NodeProto{
					OpType: proto.String("Gather"), Name: proto.String(c.Names.Fresh("order_" + n.GetName())),
					Input: []string{n.Input[0], indices}, Output: []string{gathered[key]},
					Attribute: []*onnxpb.AttributeProto{{Name: proto.String("axis"), Type: onnxpb.AttributeProto_INT.Enum(), I: proto.Int64(-1)}},
				}
				at := slices.Index(c.Proto.Graph.Node, n)
				c.Proto.Graph.Node = slices.Insert(c.Proto.Graph.Node, at, gather)
			}
			n.Input[0] = gathered[key]
		}
	}
	c.Sort()
	view, err := x.File.View(c.Proto, func(t *onnxpb.TensorProto) (*modelfile.Payload, error) {
		if of := c.OriginalTensor(t); of != nil {
			return x.File.Payload(of)
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	made, err := graph.New(view)
	if err == nil {
		made.ShareNames()
	}
	return made, err
}
