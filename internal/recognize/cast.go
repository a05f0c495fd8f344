package recognize

import (
	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
)

// castCodes says that floats are codes, perhaps minus zero points. A Mul by scales makes a weight of
// them: ONNX Runtime folds these operators to a constant when it loads a model.
type castCodes struct {
	codes *lazy.Tensor
	typ   dtype.DType // of the stored codes
	z     *lazy.Tensor
	zero  *graph.Value // the stored zero points, or nil
}

// castCodes describes a Cast of stored codes to a float type. It returns nil for other values.
func (c *Constant) castCodes(to dtype.DType) *castCodes {
	if c.Decoder != nil || c.Source == nil || c.Values.Stored == nil || to != dtype.Float32 {
		return nil
	}
	if typ := c.Values.DType; lazy.CodeType(typ) && typ.Bits() <= 8 {
		return &castCodes{codes: c.Values, typ: typ}
	}
	return nil
}

// withZeros folds a Sub of zero points from codes.
func (c *Constant) withZeros(y *Constant) *Constant {
	s, ok := lazy.MapBroadcast(c.Values.Shape, y.Values.Shape)
	if !ok || c.cast.z != nil || y.cast.z != nil || c.cast.typ != y.cast.typ {
		return nil
	}
	with := *c.cast
	with.z, with.zero = y.Values, y.Source
	return &Constant{Values: c.Values.Minus(y.Values, s), Source: c.Source, cast: &with}
}

// scaled returns how a Mul of codes x by scales y decodes a weight.
func (k *castCodes) scaled(x, y *Constant, s lazy.ScaleMap) *Decoder {
	if k.z != nil && k.z.Size() != y.Values.Size() {
		return nil
	}
	d := &Decoder{Form: "Cast+Mul", Codes: x.Source, CodeType: k.typ, X: k.codes, Z: k.z, Zero: k.zero}
	d.scaleBy(x, y, s)
	d.Scales, d.Step = y.stored, y.step
	if y.step == nil {
		d.Scales = nil
	}
	return d
}

// plain returns the constant without a doubtful Decoder.
func (c *Constant) plain() *Constant {
	if c == nil || !c.loose {
		return c
	}
	made := *c
	made.Decoder, made.loose = nil, false
	return &made
}

// readsScales reports whether an operator of com.microsoft reads scales of codes there.
func readsScales(u graph.Use) bool {
	if u.Node.GetDomain() != graph.Contrib {
		return false
	}
	switch u.Node.GetOpType() {
	case "MatMulNBits", "GatherBlockQuantized", "MatMulBnb4":
		return u.Input == 2
	}
	return false
}
