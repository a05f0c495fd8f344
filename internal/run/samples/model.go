package samples

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
)

// model is what samples are for.
type model struct {
	inputs     []*onnxpb.ValueInfoProto // inputs without an initializer
	outputs    []string
	folder     string // of the model
	ids        int    // the input with token ids, or -1
	vocabulary int64  // ids are below it
}

// unknown is a vocabulary of any size.
const unknown = math.MaxInt32

func newModel(m *modelfile.Model) *model {
	g := m.Proto.GetGraph()
	out := &model{inputs: execute.ModelInputs(g), folder: m.Folder(), ids: -1}
	for _, o := range g.GetOutput() {
		out.outputs = append(out.outputs, o.GetName())
	}
	for i, info := range out.inputs {
		name := strings.ToLower(info.GetName())
		n := execute.Vocabulary(g, info.GetName())
		if n == 0 && name == "input_ids" { // looked up after some arithmetic
			n = unknown
		}
		if n == 0 || !typeOf(info).Integer() || rank(info) > 2 || containsAny(name, "pos", "type", "segment", "mask", "past", "len", "indices") {
			continue
		}
		if out.ids < 0 || strings.Contains(name, "ids") {
			out.ids, out.vocabulary = i, n
		}
	}
	return out
}

func containsAny(name string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(name, p) })
}

func typeOf(info *onnxpb.ValueInfoProto) dtype.DType {
	return dtype.DType(info.GetType().GetTensorType().GetElemType())
}

func rank(info *onnxpb.ValueInfoProto) int {
	return len(info.GetType().GetTensorType().GetShape().GetDim())
}

// lacking returns the number of an empty input that makes a sample useless, or -1: the token ids;
// without ids, any input if all are empty.
func (m *model) lacking(inputs []*execute.Tensor) int {
	empty := func(t *execute.Tensor) bool { return t != nil && t.Len() == 0 }
	switch {
	case m.ids >= 0 && empty(inputs[m.ids]):
		return m.ids
	case len(inputs) > 0 && !slices.ContainsFunc(inputs, func(t *execute.Tensor) bool { return !empty(t) }):
		return 0
	}
	return -1
}

// index returns the number of the input with a name, or -1.
func (m *model) index(name string) int {
	return slices.IndexFunc(m.inputs, func(i *onnxpb.ValueInfoProto) bool { return i.GetName() == name })
}

// complete computes the missing inputs from the ids, which follow past other ids. It returns an error
// if another input is missing.
func (m *model) complete(inputs []*execute.Tensor, past int64) error {
	for i, info := range m.inputs {
		if inputs[i] != nil {
			continue
		}
		t, err := m.implied(inputs, info, past)
		if err != nil {
			return fmt.Errorf("input %s: %w", describe(info), err)
		}
		if t == nil {
			return fmt.Errorf("the data have no values for input %s", describe(info))
		}
		t.Name = info.GetName()
		inputs[i] = t
	}
	return nil
}

// implied computes an input that follows from the ids, or returns nil. A key-value cache gets length 0
// on axes without a fixed size, and zeros on the others.
func (m *model) implied(inputs []*execute.Tensor, info *onnxpb.ValueInfoProto, past int64) (*execute.Tensor, error) {
	if m.ids < 0 || inputs[m.ids] == nil || info.GetType().GetTensorType() == nil {
		return nil, nil
	}
	ids := inputs[m.ids]
	batch, length := int64(1), ids.Dims[len(ids.Dims)-1]
	if len(ids.Dims) == 2 {
		batch = ids.Dims[0]
	}
	name, typ, rank := strings.ToLower(info.GetName()), typeOf(info), rank(info)
	switch number := typ.Integer() || typ == dtype.Bool || typ.Float(); {
	case !number:
		return nil, nil
	case strings.Contains(name, "past") && strings.Contains(name, "len"), name == "write_indices":
		return m.filled(info, batch, 1, func(int64) int64 { return past })
	case strings.Contains(name, "use_cache"):
		return m.filled(info, batch, 1, func(int64) int64 { return min(past, 1) })
	case containsAny(name, "past", "cache") && (typ.Float() || typ == dtype.Int8):
		return m.filled(info, batch, 0, func(int64) int64 { return 0 })
	case rank == 2 && strings.Contains(name, "mask"):
		return m.filled(info, batch, past+length, func(int64) int64 { return 1 })
	case rank == 2 && containsAny(name, "type", "segment") && typ.Integer():
		return m.filled(info, batch, length, func(int64) int64 { return 0 })
	case rank <= 2 && strings.Contains(name, "pos") && typ.Integer():
		return m.filled(info, batch, length, func(i int64) int64 { return past + i%length })
	case rank <= 1 && name == "seqlens_k":
		return m.filled(info, batch, 1, func(int64) int64 { return past + length - 1 })
	case rank <= 1 && strings.Contains(name, "len") && typ.Integer():
		return m.filled(info, batch, 1, func(int64) int64 { return past + length })
	}
	return nil, nil
}

// filled makes an input: its first axis is the batch, other axes without a fixed size get n elements.
func (m *model) filled(info *onnxpb.ValueInfoProto, batch, n int64, element func(i int64) int64) (*execute.Tensor, error) {
	dims := []int64{}
	for i, d := range info.GetType().GetTensorType().GetShape().GetDim() {
		size, fixed := execute.FixedSize(d)
		switch {
		case fixed:
		case m.isBatch(d) || i == 0 && (rank(info) > 1 || n == 1):
			size = batch
		default:
			size = n
		}
		dims = append(dims, size)
	}
	t, err := execute.New(typeOf(info), dims)
	if err != nil {
		return nil, err
	}
	x := make([]int64, t.Len())
	for i := range x {
		x[i] = element(int64(i))
	}
	if !t.IsFloat() {
		return execute.FromInt64s(t.DType, dims, x)
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return execute.FromFloat64s(t.DType, dims, y)
}

// isBatch reports whether a dimension is the batch, by its name.
func (m *model) isBatch(d *onnxpb.TensorShapeProto_Dimension) bool {
	if m.ids < 0 {
		return false
	}
	ids := m.inputs[m.ids].GetType().GetTensorType().GetShape().GetDim()
	return len(ids) == 2 && d.GetDimParam() != "" && d.GetDimParam() == ids[0].GetDimParam()
}

// checkIDs refuses ids outside of the model's vocabulary. A runtime would fail with a less clear
// error, or look up negative ids from the end of the table. With negative, as in comparisons of
// models, negative ids are allowed.
func (m *model) checkIDs(inputs []*execute.Tensor, negative bool) error {
	if m.ids < 0 || inputs[m.ids] == nil {
		return nil
	}
	least, ids := int64(0), inputs[m.ids]
	if negative {
		least = -m.vocabulary
	}
	for i, id := range ids.Int64s() {
		if id >= least && id < m.vocabulary {
			continue
		}
		at := fmt.Sprintf("position %d", i)
		if n := len(ids.Dims); n > 1 {
			length := int(ids.Dims[n-1])
			at = fmt.Sprintf("row %d, position %d", i/length, i%length)
		}
		return fmt.Errorf("input %s, %s: %w", describe(m.inputs[m.ids]), at, m.wrongID(id))
	}
	return nil
}

// wrongID says that the model does not know an id.
func (m *model) wrongID(id int64) error {
	known := "no model knows a negative id"
	if m.vocabulary < unknown {
		known = fmt.Sprintf("the model knows 0 to %d", m.vocabulary-1)
	}
	if id < 0 {
		known += "; leave padding out, or give it another id and 0 in the attention mask"
	}
	return fmt.Errorf("id %d: %s", id, known)
}
