package discover

import (
	"cmp"
	"fmt"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/shapes"
	"onnxquant/onnxq/spec"
)

// chooseScaleType sets the type of the scales. One from the options gives way where the weight's
// own settings rule it out, one from the weight's override does not.
func (d *Decision) chooseScaleType(opts Options) error {
	c, s := d.Choice, opts.ScaleType
	spec.SetIf(&s, d.Override.ScaleType)
	err := s.Check(c.Format, c.ZeroPoint, opts.Style, c.Algorithm, opts.Target.Target)
	switch {
	case err != nil && d.Override.ScaleType != nil:
		return fmt.Errorf("precision_info: %w", err)
	case err != nil:
		d.remark("scales as usual: " + err.Error())
	case d.DType == dtype.Float16 || d.DType == dtype.BFloat16:
		if own := strings.ToLower(d.DType.String()); s != "" && string(s) != own {
			d.remark(fmt.Sprintf("scales of type %s, as the weight", own))
		}
	case s.Smaller():
		c.ScaleType = s
	}
	return nil
}

// scaleNodes is about what the nodes that decode scales take, in bytes.
const scaleNodes = 256

// settleScales leaves scales as they are where that is smaller or, by its values, needed.
func (d *Decision) settleScales(fit Scales) {
	c := d.Choice
	if !c.ScaleType.Smaller() || d.Reason != "" {
		return
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
		d.remark(fmt.Sprintf("scales of type %s, not %s: %s", cmp.Or(c.ScaleType, spec.ScaleFloat32), asked, fit.Why))
	}
}
