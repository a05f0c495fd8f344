package discover

import (
	"cmp"
	"fmt"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/shapes"
	"onnxquant/spec"
)

// chooseScaleType returns the type of the scales. If the weight's settings do not support the type
// in the options, the type is the default. If they do not support the type in the override, it is
// an error.
func (d *Decision) chooseScaleType(c Choice, opts Options) (spec.ScaleType, error) {
	s := opts.ScaleType
	spec.SetIf(&s, d.Override.ScaleType)
	err := cmp.Or(s.Check(c.Format, c.ZeroPoint, opts.Style, c.Algorithm), opts.Target.CheckScaleType(s))
	switch {
	case err != nil && d.Override.ScaleType != nil:
		return "", fmt.Errorf("precision_info: %w", err)
	case err != nil:
		d.remark("scales of the default type: " + err.Error())
		d.miss(opts.Asked.ScaleType, Unmet{Setting: "scale-type", Asked: string(s), Got: "the default", Why: err.Error()})
	case d.DType == dtype.Float16 || d.DType == dtype.BFloat16:
		if own := strings.ToLower(d.DType.String()); s != "" && string(s) != own {
			d.remark(fmt.Sprintf("scales of type %s, as the weight", own))
			d.miss(opts.Asked.ScaleType, Unmet{Setting: "scale-type", Asked: string(s), Got: own, Why: "the weight has that type"})
		}
	case s.Smaller():
		return s, nil
	}
	return "", nil
}

// scaleNodes is the approximate size in bytes of the nodes that decode scales.
const scaleNodes = 256

// withScales changes the type of scales if the values of the weight need another. It takes the
// default type if that is smaller.
func (d *Decision) withScales(c Choice, fit Scales, opts Options) Choice {
	if !c.ScaleType.Smaller() {
		return c
	}
	asked := c.ScaleType
	if fit.Why != "" {
		c.ScaleType = fit.Type
	}
	k := c.Operand.View[c.Operand.Axis]
	blocks := int64(1)
	if c.Block > 0 {
		blocks = shapes.DivideUp(k, int64(c.Block))
	}
	scales := shapes.Count(c.Operand.View) / k * blocks
	if c.Style == spec.StyleDynamic || scales*(4-c.ScaleType.DType().Bytes(1)) <= scaleNodes {
		c.ScaleType = ""
	}
	if fit.Why != "" {
		got := cmp.Or(c.ScaleType, spec.ScaleFloat32)
		d.remark(fmt.Sprintf("scales of type %s, not %s: %s", got, asked, fit.Why))
		d.miss(opts.Asked.ScaleType, Unmet{Setting: "scale-type", Asked: string(asked), Got: string(got), Why: fit.Why})
	}
	return c
}
