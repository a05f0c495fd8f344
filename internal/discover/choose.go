package discover

import (
	"errors"
	"fmt"
	"slices"

	"onnxquant/internal/reach"
	"onnxquant/internal/shapes"
	"onnxquant/onnxq/spec"
)

// choose sets format, block and axis from the options and the tensor's override.
func (d *Decision) choose(opts Options, smallerAsInt8 bool) error {
	c, r := d.Choice, d.request(opts, smallerAsInt8)
	c.Target, c.Rule, c.ZeroPoint = opts.Target, opts.Rule, r.zeroPoint
	c.AccuracyLevel, c.NoFoldBias = opts.AccuracyLevel, opts.NoFoldBias || opts.Target.MatMulNBits.NoBias
	if a := d.Override.Axis; a != nil {
		axis := shapes.Axis(int64(*a), len(d.Shape))
		if axis < 0 || axis >= int64(len(d.Shape)) {
			return fmt.Errorf("precision_info: axis %d, but its rank is %d", *a, len(d.Shape))
		}
		c.Operand, d.unknown = reach.Operand{Axis: int(axis), View: d.Shape}, ""
	}
	if r.format == spec.Float {
		c.Format, d.Reason = spec.Float, FormatFloat
		return nil
	}
	if eight := r.format == spec.Int8 || r.format == spec.Uint8 || r.format == "" && r.bits == 8; !eight && r.block == spec.PerTensor {
		r.block = 0 // not dynamic
	}
	var err error
	if c.Format, c.Block, err = spec.Resolve(r.bits, r.format, r.block, r.zeroPoint); err != nil {
		return err
	}
	if r.fallback != "" {
		d.Fallback = fmt.Sprintf("%s, not %s: %s", c.Format, opts.usual(), r.fallback)
		d.remark(d.Fallback)
	}
	c.Range = opts.Range.Of(c.Format, c.ZeroPoint)
	if err := d.chooseAlgorithm(opts); err != nil {
		return err
	}
	if err := d.chooseScaleType(opts); err != nil || c.Format.Encoding() == nil {
		return err
	}
	if name, ok := opts.Names.For(d.Value.Path); ok && d.unknown == "" {
		d.Importance, err = opts.Importance.Of(c.Operand.View[c.Operand.Axis], 1, name, d.Value.Path)
	}
	return err
}

// chooseAlgorithm sets the algorithm. One from the options gives way to rtn where the weight's
// own settings rule it out, one from the weight's override does not.
func (d *Decision) chooseAlgorithm(opts Options) error {
	c := d.Choice
	c.Algorithm = opts.Algorithm
	spec.SetIf(&c.Algorithm, d.Override.Algorithm)
	err := c.Algorithm.Check(c.Format, c.ZeroPoint, opts.Style, opts.Range, opts.Target.Target)
	switch {
	case errors.Is(err, spec.ErrZeroPoint) && d.Override.Algorithm != nil:
		return fmt.Errorf(`precision_info: %w: add "zero_point": true`, err)
	case err != nil && d.Override.Algorithm != nil:
		return fmt.Errorf("precision_info: %w", err)
	case err != nil:
		d.remark("rounded to nearest: " + err.Error())
		c.Algorithm = spec.RTN
	}
	if c.Algorithm.NeedsData() && !opts.Calibrated { // from the override: options are checked before
		return fmt.Errorf("precision_info: algorithm %s %w", c.Algorithm, spec.ErrNoData)
	}
	if why := d.noHessian(opts.Memory); c.Algorithm == spec.Best && !opts.Calibrated && why != "" {
		d.remark("algorithm mse: " + why)
		c.Algorithm = spec.LeastAngle
	}
	if c.Algorithm != spec.RTN && c.Algorithm != "" {
		c.Range = spec.Range{Kind: spec.MinMax} // others find their own
	}
	return nil
}

// noHessian says why a weight cannot have a Hessian within the memory, or "".
func (d *Decision) noHessian(memory int64) string {
	if d.Choice.Format.Encoding() != nil {
		return "best is not for ggml's formats"
	}
	product := slices.ContainsFunc(d.Reach.Leaves, func(l reach.Leaf) bool {
		op := l.Node.GetOpType()
		return op == "MatMul" || op == "Gemm"
	})
	if !product || d.unknown != "" {
		return "best is for weights of MatMul and Gemm"
	}
	if k := d.Choice.Operand.View[d.Choice.Operand.Axis]; k > memory/4/max(k, 1) {
		return fmt.Sprintf("best needs --memory of %d KiB or more", 4*k*k>>10+1)
	}
	return ""
}

// request is what is asked for a weight: the first fields as in Options.
type request struct {
	bits      int
	format    spec.Format
	block     int
	zeroPoint bool
	fallback  string // why it is not the format of the options though nobody asked for another
}

// request returns what the options and the tensor's override ask for, or a fallback where
// the options do not say otherwise. smallerAsInt8 is as in Exceptions.
func (d *Decision) request(opts Options, smallerAsInt8 bool) request {
	r := request{bits: opts.Bits, format: opts.Format, block: opts.Block, zeroPoint: opts.ZeroPoint}
	o := d.Override
	switch {
	case o.Format != nil || o.Bits != nil: // the override replaces both
		r.bits, r.format = 0, ""
		if o.Format != nil {
			r.format = *o.Format
			r.dropBlock(r.format)
		}
	case smallerAsInt8:
		r.fall(opts.usual(), "it is smaller with so few elements")
	case !d.Convolves():
	case opts.ConvFormat != "":
		r.bits, r.format = 0, opts.ConvFormat
		r.dropBlock(r.format)
		r.zeroPoint = r.zeroPoint && r.format.Traits().Family == spec.Integer
	case opts.usual().Bits() < 8 && opts.Format != spec.Float:
		r.fall(opts.usual(), fmt.Sprintf("%d bits are too few for convolutions; see --conv-format", opts.usual().Bits()))
	}
	spec.SetIf(&r.bits, o.Bits)
	spec.SetIf(&r.block, o.Block)
	spec.SetIf(&r.zeroPoint, o.ZeroPoint)
	return r
}

// Convolves reports whether a convolution reads the weight.
func (d *Decision) Convolves() bool {
	return slices.ContainsFunc(d.Reach.Leaves, reach.Leaf.Convolves)
}

// dropBlock drops the block size of the options, if a format has one of its own.
func (r *request) dropBlock(f spec.Format) {
	if f.Traits().Block != 0 {
		r.block = 0
	}
}

// fall asks for integers of 8 bits in place of the usual format.
func (r *request) fall(usual spec.Format, why string) {
	r.bits, r.format, r.fallback = 8, "", why
	r.dropBlock(usual)
}

// usual is the format that the options give to all weights without another rule.
func (o Options) usual() spec.Format {
	f, _, _ := spec.Resolve(o.Bits, o.Format, o.Block, o.ZeroPoint)
	return f
}
