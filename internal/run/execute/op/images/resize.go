// Package images has the operators that resample images.
package images

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/internal/kernels"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// Operators are the operators of this package.
var Operators = op.Table{
	"Resize": {Inputs: 1, Attributes: "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value keep_aspect_ratio_policy mode nearest_mode",
		Run: runResize},
	"Upsample": {Inputs: 1, Attributes: "mode scales", Run: runUpsample},
}

// resizing is how one axis is resized.
type resizing struct {
	in, out    int
	scale      float64
	start, end float64 // of the region of interest, as parts of the axis
}

// place returns where element o of the output lies in the input.
func (r *resizing) place(mode string, o float64) (float64, error) {
	in, out := float64(r.in), r.scale*float64(r.in)
	half := (o+0.5)/r.scale - 0.5
	switch mode {
	case "half_pixel":
		return half, nil
	case "half_pixel_symmetric":
		return in/2*(1-float64(r.out)/out) + half, nil
	case "pytorch_half_pixel":
		if r.out <= 1 {
			return 0, nil
		}
		return half, nil
	case "align_corners":
		if out <= 1 {
			return 0, nil
		}
		return o * (in - 1) / (out - 1), nil
	case "asymmetric":
		return o / r.scale, nil
	case "tf_half_pixel_for_nn":
		return (o + 0.5) / r.scale, nil
	case "tf_crop_and_resize":
		if r.out <= 1 {
			return (r.start + r.end) / 2 * (in - 1), nil
		}
		return r.start*(in-1) + o*(r.end-r.start)*(in-1)/float64(r.out-1), nil
	}
	return 0, op.Unsupported("coordinate_transformation_mode %q", mode)
}

// nearest rounds a place.
func nearest(mode string, x float64) (float64, error) {
	switch mode {
	case "round_prefer_floor":
		return math.Ceil(x - 0.5), nil
	case "round_prefer_ceil":
		return math.Floor(x + 0.5), nil
	case "floor":
		return math.Floor(x), nil
	case "ceil":
		return math.Ceil(x), nil
	}
	return 0, op.Unsupported("nearest_mode %q", mode)
}

// kernel returns the weights of the elements around a place, by their distance from it, and how many elements
// it reaches before and behind.
func kernel(c *op.Call, scale float64) (weight func(distance float64) float64, reach int, err error) {
	narrow := 1.0
	if c.Is("antialias") {
		narrow = min(scale, 1)
	}
	switch c.Text("mode", "nearest") {
	case "linear":
		return func(d float64) float64 { return max(1-math.Abs(d*narrow), 0) }, int(math.Ceil(1 / narrow)), nil
	case "cubic":
		a := float64(c.Float("cubic_coeff_a", -0.75))
		return func(d float64) float64 {
			d = math.Abs(d * narrow)
			switch {
			case d <= 1:
				return (a+2)*d*d*d - (a+3)*d*d + 1
			case d < 2:
				return a*d*d*d - 5*a*d*d + 8*a*d - 4*a
			}
			return 0
		}, int(math.Ceil(2 / narrow)), nil
	}
	return nil, 0, op.Unsupported("mode %q", c.Text("mode", "nearest"))
}

// resample resizes an axis of a float tensor by weighted sums.
func resample(c *op.Call, t *execute.Tensor, axis int, r resizing) (*execute.Tensor, error) {
	weight, reach, err := kernel(c, r.scale)
	if err != nil {
		return nil, err
	}
	dims := slices.Clone(t.Dims)
	dims[axis] = int64(r.out)
	outer, _, inner := op.Sizes(t.Dims, axis)
	if err := c.Spend(float64(op.Product(dims)) * float64(min(2*reach, r.in))); err != nil {
		return nil, err
	}
	return c.NewFloats(t.DType, dims, func(y []float32) error {
		clear(y)
		x := op.Floats(t)
		weights := make([]float64, r.in)
		for o := range r.out {
			at, err := r.place(c.Text("coordinate_transformation_mode", "half_pixel"), float64(o))
			if err != nil {
				return err
			}
			first, last := r.weigh(weights, at, reach, weight, c.Is("exclude_outside"))
			for k := first; k <= last; k++ {
				w := float32(weights[k])
				if weights[k] = 0; w == 0 {
					continue
				}
				for i := range outer {
					from, to := x[(i*r.in+k)*inner:][:inner], y[(i*r.out+o)*inner:][:inner]
					if inner == 1 {
						to[0] += float32(w * from[0])
					} else {
						kernels.AddMultiple(to, w, from)
					}
				}
			}
		}
		return nil
	})
}

// weigh sets the weights of the elements near a place, which add up to 1, and returns the first and the last.
// Elements outside are the ones at the edge, or left out.
func (r *resizing) weigh(weights []float64, at float64, reach int, weight func(float64) float64, leaveOut bool) (first, last int) {
	first, last = r.in-1, 0
	sum, base := 0.0, math.Floor(at)
	for i := -reach + 1; i <= reach; i++ {
		k := base + float64(i)
		inside := min(max(k, 0), float64(r.in-1))
		if inside != inside || leaveOut && inside != k {
			continue
		}
		w := weight(k - at)
		weights[int(inside)] += w
		sum += w
		first, last = min(first, int(inside)), max(last, int(inside))
	}
	for k := first; k <= last && sum != 0; k++ {
		weights[k] /= sum
	}
	return first, last
}

// pick resizes an axis of any tensor by the nearest elements.
func pick(c *op.Call, t *execute.Tensor, axis int, r resizing) (*execute.Tensor, error) {
	list := make([]int64, r.out)
	for o := range list {
		at, err := r.place(c.Text("coordinate_transformation_mode", "half_pixel"), float64(o))
		if err != nil {
			return nil, err
		}
		if at, err = nearest(c.Text("nearest_mode", "round_prefer_floor"), at); err != nil {
			return nil, err
		}
		list[o] = int64(min(max(at, 0), float64(r.in-1)))
	}
	return c.Gather(t, op.Int64([]int64{int64(r.out)}, list), axis)
}

// resize resizes axes one after another.
func resize(c *op.Call, t *execute.Tensor, plan map[int]resizing) (*execute.Tensor, error) {
	dims := slices.Clone(t.Dims)
	for axis, r := range plan {
		if r.out < 0 || r.out > execute.MaxBytes || r.out > 0 && r.in == 0 || r.scale <= 0 || r.scale != r.scale {
			return nil, fmt.Errorf("axis %d of size %d cannot get size %d by %v", axis, r.in, r.out, r.scale)
		}
		dims[axis] = int64(r.out)
	}
	bound := slices.Clone(dims)
	for i, d := range t.Dims {
		bound[i] = max(d, bound[i])
	}
	if err := c.Room(t.DType, bound); err != nil {
		return nil, err
	}
	crop := c.Text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
	for axis := range t.Dims {
		r, ok := plan[axis]
		if !ok || r.in == r.out && r.scale == 1 && !crop {
			continue
		}
		var err error
		switch {
		case c.Text("mode", "nearest") == "nearest":
			t, err = pick(c, t, axis, r)
		case !t.IsFloat():
			return nil, op.BadType(t)
		default:
			t, err = resample(c, t, axis, r)
		}
		if err != nil {
			return nil, err
		}
	}
	if crop && t.IsFloat() {
		return extrapolate(c, t, plan)
	}
	return t, nil
}

// extrapolate sets the elements whose places are outside of the input.
func extrapolate(c *op.Call, t *execute.Tensor, plan map[int]resizing) (*execute.Tensor, error) {
	y := slices.Clone(op.Floats(t))
	for axis, r := range plan {
		_, n, inner := op.Sizes(t.Dims, axis)
		for i := range y {
			at, err := r.place("tf_crop_and_resize", float64(i/inner%n))
			if err != nil {
				return nil, err
			}
			if at < 0 || at > float64(r.in-1) {
				y[i] = c.Float("extrapolation_value", 0)
			}
		}
	}
	return execute.FromFloat32s(t.DType, t.Dims, y)
}

func runResize(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	if c.Opset < 11 { // inputs X, scales; coordinates as Upsample
		return runUpsample(c)
	}
	list := c.Ints("axes", nil)
	if list == nil {
		for i := range t.Dims {
			list = append(list, int64(i))
		}
	}
	var scales, sizes, region []float64
	for input, of := range map[int]*[]float64{1: &region, 2: &scales, 3: &sizes} {
		if in := c.Input(input); in != nil && in.Len() > 0 {
			*of = in.Float64s()
		}
	}
	if (scales == nil) == (sizes == nil) || max(len(scales), len(sizes)) != len(list) || region != nil && len(region) != 2*len(list) {
		return nil, fmt.Errorf("%d scales and %d sizes for %d axes", len(scales), len(sizes), len(list))
	}
	plan := map[int]resizing{}
	for i, axis := range list {
		a, err := op.Axis(axis, len(t.Dims))
		if err != nil {
			return nil, err
		}
		r := resizing{in: int(t.Dims[a]), end: 1}
		if region != nil {
			r.start, r.end = region[i], region[len(list)+i]
		}
		if sizes != nil {
			r.out, r.scale = int(sizes[i]), sizes[i]/float64(r.in)
		} else {
			r.out, r.scale = int(math.Floor(float64(r.in)*scales[i])), scales[i]
		}
		plan[a] = r
	}
	if sizes != nil {
		if err := keepRatio(c.Text("keep_aspect_ratio_policy", "stretch"), plan); err != nil {
			return nil, err
		}
	}
	return op.One(resize(c, t, plan))
}

// keepRatio gives all axes one scale, if the policy wants that.
func keepRatio(policy string, plan map[int]resizing) error {
	better := map[string]func(a, b float64) float64{"not_larger": math.Min, "not_smaller": math.Max}[policy]
	if better == nil {
		if policy != "stretch" {
			return op.Unsupported("keep_aspect_ratio_policy %q", policy)
		}
		return nil
	}
	scale := math.NaN()
	for _, r := range plan {
		if scale != scale {
			scale = r.scale
		}
		scale = better(scale, r.scale)
	}
	for axis, r := range plan {
		r.scale, r.out = scale, int(math.Floor(scale*float64(r.in)+0.5))
		plan[axis] = r
	}
	return nil
}

// runUpsample is Resize as it was up to opset 10: nearest elements are those before a place.
func runUpsample(c *op.Call) ([]*execute.Tensor, error) {
	var scales []float64
	switch a := c.Attribute("scales"); {
	case c.Input(1) != nil:
		scales = c.In[1].Float64s()
	case a != nil:
		for _, v := range a.GetFloats() {
			scales = append(scales, float64(v))
		}
	}
	t := c.In[0]
	if len(scales) != len(t.Dims) {
		return nil, fmt.Errorf("%d scales for dims %v", len(scales), t.Dims)
	}
	plan := map[int]resizing{}
	for a, scale := range scales {
		plan[a] = resizing{in: int(t.Dims[a]), out: int(math.Floor(float64(t.Dims[a]) * scale)), scale: scale, end: 1}
	}
	inner := *c
	inner.Node = asymmetric(c)
	return op.One(resize(&inner, t, plan))
}

// asymmetric is the node with the modes that old opsets imply.
func asymmetric(c *op.Call) *onnxpb.NodeProto {
	n := &onnxpb.NodeProto{OpType: c.Node.OpType, Output: c.Node.Output}
	mode := c.Text("mode", "nearest")
	if mode == "bilinear" {
		mode = "linear"
	}
	for _, pair := range [][2]string{{"mode", mode}, {"coordinate_transformation_mode", "asymmetric"}, {"nearest_mode", "floor"}} {
		n.Attribute = append(n.Attribute, &onnxpb.AttributeProto{Name: &pair[0], Type: onnxpb.AttributeProto_STRING.Enum(), S: []byte(pair[1])})
	}
	return n
}
