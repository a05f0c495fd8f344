package discover

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"onnxquant/internal/reach"
	"onnxquant/internal/shapes"
	"onnxquant/spec"
)

// choose returns format, block, axis and algorithm, from the options and the override of the
// tensor. o is how readers sum over the tensor. With format float, nothing else is set.
func (d *Decision) choose(o reach.Operand, opts Options, smallerAsInt8 bool) (c Choice, err error) {
	r := d.request(opts, smallerAsInt8)
	c = Choice{
		Operand: o, Target: opts.Target, Rule: opts.Rule, ZeroPoint: r.zeroPoint,
		AccuracyLevel: opts.AccuracyLevel, NoFoldBias: opts.NoFoldBias,
	}
	if a := d.Override.Axis; a != nil {
		axis := shapes.Axis(int64(*a), len(d.Shape))
		if axis < 0 || axis >= int64(len(d.Shape)) {
			return c, fmt.Errorf("precision_info: axis %d, but its rank is %d", *a, len(d.Shape))
		}
		c.Operand, d.unknown = reach.Operand{Axis: int(axis), View: d.Shape}, ""
	}
	if r.format == spec.Float {
		c.Format = spec.Float
		return c, nil
	}
	if eight := r.format == spec.Int8 || r.format == spec.Uint8 || r.format == "" && r.bits == 8; !eight && r.block == spec.PerTensor {
		r.block = 0 // not dynamic
	}
	if c.Format, c.Block, err = spec.Resolve(r.bits, r.format, r.block, r.zeroPoint); err != nil {
		return c, err
	}
	if r.block == 0 && c.Target.Target == spec.Portable && opts.Style != spec.NBits {
		d.divide(&c)
	}
	if r.fallback != "" {
		d.Fallback = fmt.Sprintf("%s, not %s: %s", c.Format, opts.usual(), r.fallback)
		d.remark(d.Fallback)
	}
	c.Range = opts.Range.Of(c.Format, c.ZeroPoint)
	if c, err = d.chooseAlgorithm(c, opts); err != nil {
		return c, err
	}
	if c.ScaleType, err = d.chooseScaleType(c, opts); err != nil || c.Format.Encoding() == nil {
		return c, err
	}
	if name, ok := opts.Names.For(d.Value.Path); ok && d.unknown == "" {
		d.Importance, err = opts.Importance.Of(c.Operand.View[c.Operand.Axis], 1, name, d.Value.Path)
	}
	return c, err
}

// divide makes the default block size smaller if it does not divide the reduction axis: OpenVINO and
// TensorRT refuse a DequantizeLinear whose last block is short. The size stays if no usual one divides.
func (d *Decision) divide(c *Choice) {
	k := c.Operand.View[c.Operand.Axis]
	if !c.Format.Scaled() || c.Format.Encoding() != nil || c.Block <= 0 || k%int64(c.Block) == 0 {
		return
	}
	for block := c.Block / 2; block >= leastDefault; block /= 2 {
		if k%int64(block) == 0 {
			d.remark(fmt.Sprintf("block %d: %d does not divide %d, and OpenVINO and TensorRT refuse a short last block", block, c.Block, k))
			c.Block = block
			return
		}
	}
}

// leastDefault is the smallest block size that nobody has to ask for: ONNX Runtime fuses no smaller one.
const leastDefault = 16

// chooseAlgorithm sets the algorithm and the range. If the weight's settings do not support the
// algorithm in the options, it falls back to rtn. If they do not support the one in the override,
// it is an error.
func (d *Decision) chooseAlgorithm(c Choice, opts Options) (Choice, error) {
	c.Algorithm = opts.Algorithm
	spec.SetIf(&c.Algorithm, d.Override.Algorithm)
	err := cmp.Or(c.Algorithm.Check(c.Format, c.ZeroPoint, opts.Style, opts.Range), opts.Target.CheckAlgorithm(c.Algorithm, c.ZeroPoint))
	switch {
	case errors.Is(err, spec.ErrZeroPoint) && d.Override.Algorithm != nil:
		return c, fmt.Errorf(`precision_info: %w: add "zero_point": true`, err)
	case err != nil && d.Override.Algorithm != nil:
		return c, fmt.Errorf("precision_info: %w", err)
	case err != nil:
		d.remark("rounded to nearest: " + err.Error())
		d.missAlgorithm(opts, spec.RTN, err.Error())
		c.Algorithm = spec.RTN
	}
	if c.Algorithm.NeedsData() && !opts.Calibrated { // from the override; the options have been checked
		return c, fmt.Errorf("precision_info: algorithm %s %w", c.Algorithm, spec.ErrNoData)
	}
	if why := d.noHessian(c, opts.Memory); c.Algorithm == spec.Best && !opts.Calibrated && why != "" {
		d.remark("algorithm mse: " + why)
		d.missAlgorithm(opts, spec.MSE, why)
		c.Algorithm = spec.MSE
	}
	if c.Algorithm != spec.RTN && c.Algorithm != "" {
		c.Range = spec.Range{Kind: spec.MinMax} // the algorithm finds its own range
	}
	return c, nil
}

// noHessian returns why algorithm best cannot use a Hessian of the weight, or "". The Hessian must
// fit into memory.
func (d *Decision) noHessian(c Choice, memory int64) string {
	if c.Format.Encoding() != nil {
		return "best is not for ggml's formats"
	}
	product := slices.ContainsFunc(d.Reach.Leaves, func(l reach.Leaf) bool {
		op := l.Node.GetOpType()
		return op == "MatMul" || op == "Gemm"
	})
	if !product || d.unknown != "" {
		return "best is for weights of MatMul and Gemm"
	}
	if k := c.Operand.View[c.Operand.Axis]; k > memory/4/max(k, 1) {
		return fmt.Sprintf("best needs --memory of %d KiB or more", 4*k*k>>10+1)
	}
	return ""
}

// request is the settings asked for a weight. The first fields are as in Options.
type request struct {
	bits      int
	format    spec.Format
	block     int
	zeroPoint bool
	fallback  string // why the format falls back to another one that nobody asked for
}

// request returns what the options and the override ask for, or a fallback. smallerAsInt8 is as in
// Exception.
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

// dropBlock drops the block size of the options if the format has its own.
func (r *request) dropBlock(f spec.Format) {
	if f.Traits().Block != 0 {
		r.block = 0
	}
}

// fall falls back from the usual format to integers of 8 bits.
func (r *request) fall(usual spec.Format, why string) {
	r.bits, r.format, r.fallback = 8, "", why
	r.dropBlock(usual)
}

// usual is the format of weights to which no other rule applies.
func (o Options) usual() spec.Format {
	f, _, _ := spec.Resolve(o.Bits, o.Format, o.Block, o.ZeroPoint)
	return f
}
