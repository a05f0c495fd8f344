package opset

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// The lowest opset that can be raised, and the highest it can be raised to.
const (
	oldest = 1
	newest = 28
)

// Raised is a domain for operators of ai.onnx that already have the definition of the target opset.
// Raise does not change them, but knows their types and ranks.
const Raised = "onnxquant.raised"

// ErrRaise is wrapped by every error of Raise.
var ErrRaise = errors.New("the opset cannot be raised")

// An Error names the node that cannot be raised. Errors of Raise may wrap one.
type Error struct {
	Op     string // operator
	Node   string // the node's name or, if it has none, the name of its first output
	Step   int64  // opset that changed the operator; 0: the operator is unknown
	Reason string
}

func (e *Error) Error() string {
	op, node := quote(e.Op), quote(e.Node)
	op = op[1 : len(op)-1]
	if e.Step == 0 {
		return fmt.Sprintf("operator %s (node %s): %s", op, node, e.Reason)
	}
	return fmt.Sprintf("operator %s (node %s) changed at opset %d: %s; raise the model with its exporter first", op, node, e.Step, e.Reason)
}

// quote quotes a name of the model for a message, and truncates it.
func quote(name string) string {
	if len(name) > 80 {
		name = name[:80] + "…"
	}
	return strconv.Quote(name)
}

// Of returns the imported opset of ai.onnx; ok is false if it is not imported.
func Of(imports []*onnxpb.OperatorSetIdProto) (version int64, ok bool) {
	for _, id := range imports {
		if isDefault(id.GetDomain()) {
			version, ok = max(version, id.GetVersion()), true
		}
	}
	return version, ok
}

// OfModel returns the opset of ai.onnx that a model imports; ok is false if it imports none.
// Models of the first IR versions have no imports, and opset 1.
func OfModel(m *onnxpb.ModelProto) (version int64, ok bool) {
	if len(m.OpsetImport) == 0 && m.IrVersion != nil && m.GetIrVersion() < 3 {
		return oldest, true
	}
	return Of(m.OpsetImport)
}

// Raise rewrites the ai.onnx operators of m for opset to, so that they compute the same. It raises the
// IR version if needed. fresh must return names that are used nowhere in m. A model that already has
// the opset, or a higher one, is not changed; nor is m after an error. Changed nodes are replaced;
// other nodes and all tensors keep their addresses.
//
// A function of the model keeps its older opset if all its operators have the same definition at the
// model's opset. Functions in growing are always raised with the model, to the opset to at least: the
// caller will add operators of that opset to them. The standard and ONNX Runtime demand one opset for
// operators whose definition changed.
func Raise(m *onnxpb.ModelProto, to int64, fresh func(hint string) string, growing ...*onnxpb.FunctionProto) error {
	return RaiseWithout(m, nil, to, fresh, growing...)
}

// RaiseWithout is Raise for a model that lacks some nodes yet: missing maps their outputs to values
// with the same type and rank.
func RaiseWithout(m *onnxpb.ModelProto, missing map[string]string, to int64, fresh func(hint string) string, growing ...*onnxpb.FunctionProto) error {
	for _, f := range growing {
		version, _ := Of(f.OpsetImport)
		to = max(to, version)
	}
	if from, ok := OfModel(m); ok && from >= to {
		older := func(f *onnxpb.FunctionProto) bool {
			version, ok := Of(f.OpsetImport)
			return ok && version < from
		}
		if !slices.ContainsFunc(growing, older) {
			return nil
		}
		to = from
	}
	r, err := raised(m, missing, to, fresh, growing)
	if err != nil {
		return fmt.Errorf("%w to %d: %w", ErrRaise, to, err)
	}
	r.commit()
	m.OpsetImport = withDefault(m.OpsetImport, to)
	RaiseIR(m, IRFor(to))
	return nil
}

// raised does the work of Raise without changing m.
func raised(m *onnxpb.ModelProto, missing map[string]string, to int64, fresh func(string) string, growing []*onnxpb.FunctionProto) (*raiser, error) {
	if to > newest {
		return nil, fmt.Errorf("opset %d is newer than %d, the newest known", to, newest)
	}
	from, ok := OfModel(m)
	if err := agree(m.OpsetImport, from); err != nil {
		return nil, err
	}
	r := newRaiser(m, to, fresh)
	r.missing = missing
	graphs := []*onnxpb.GraphProto{m.Graph}
	for _, t := range m.TrainingInfo {
		graphs = append(graphs, t.Initialization, t.Algorithm)
	}
	if !ok {
		from = noOpset
	}
	for _, g := range graphs {
		if from == to {
			break // only functions have an older opset
		}
		if err := r.raise(r.scope(g, nil), from); err != nil {
			return nil, err
		}
	}
	for _, f := range m.Functions {
		from, ok := Of(f.OpsetImport)
		if !ok || from >= to {
			continue
		}
		err := agree(f.OpsetImport, from)
		if err == nil {
			err = r.raiseFunction(f, from, slices.Contains(growing, f))
		}
		if err != nil {
			return nil, fmt.Errorf("function %s.%s: %w", f.GetDomain(), f.GetName(), err)
		}
	}
	return r, nil
}

// agree returns an error if ai.onnx is imported at another opset too.
func agree(imports []*onnxpb.OperatorSetIdProto, version int64) error {
	for _, id := range imports {
		if isDefault(id.GetDomain()) && id.GetVersion() != version {
			return fmt.Errorf("ai.onnx is imported twice, at opsets %d and %d", id.GetVersion(), version)
		}
	}
	return nil
}

// withDefault returns the imports with ai.onnx, in either spelling, at the given version. It adds the
// import if it is missing.
func withDefault(imports []*onnxpb.OperatorSetIdProto, version int64) []*onnxpb.OperatorSetIdProto {
	found := false
	for _, id := range imports {
		if isDefault(id.GetDomain()) {
			id.Version = proto.Int64(version)
			found = true
		}
	}
	if !found {
		imports = append(imports, &onnxpb.OperatorSetIdProto{Domain: proto.String(""), Version: proto.Int64(version)})
	}
	return imports
}

func isDefault(domain string) bool { return domain == "" || domain == "ai.onnx" }

// FreeInitializers is the first IR version in which initializers need not be inputs.
const FreeInitializers = 4

// RaiseIR raises the IR version of a model to ir, if it is lower. Initializers that had to be
// inputs, as constants, are inputs no more: from IR 4 on, callers could replace them.
func RaiseIR(m *onnxpb.ModelProto, ir int64) {
	was := m.GetIrVersion()
	if was >= ir {
		return
	}
	if version, ok := OfModel(m); ok && len(m.OpsetImport) == 0 {
		m.OpsetImport = withDefault(nil, version)
	}
	m.IrVersion = &ir
	if was >= FreeInitializers || ir < FreeInitializers || m.Graph == nil {
		return
	}
	stored := map[string]bool{}
	for _, t := range m.Graph.Initializer {
		stored[t.GetName()] = true
	}
	m.Graph.Input = slices.DeleteFunc(m.Graph.Input, func(in *onnxpb.ValueInfoProto) bool { return stored[in.GetName()] })
}

// IRFor returns the least IR version that a model at the given opset needs.
func IRFor(opset int64) int64 {
	ir := int64(3)
	for _, since := range irSince {
		if opset >= since {
			ir++
		}
	}
	return ir
}

// irSince has the lowest opset that needs IR version 4, 5, ….
var irSince = []int64{9, 10, 11, 12, 15, 19, 21, 23, 24, 25, 28}
