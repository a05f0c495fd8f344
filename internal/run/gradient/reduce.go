package gradient

import (
	"math"

	"onnxquant/internal/convolve"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/evaluate"
	"onnxquant/internal/run/execute/op"
	"onnxquant/internal/run/execute/op/products"
)

// softmax is the rule of Softmax and LogSoftmax. Before opset 13 all axes behind axis belong to a row.
func softmax(log bool) rule {
	return func(n *node) error {
		dims := n.In[0].Dims
		unset := int64(-1)
		if n.Opset < 13 {
			unset = 1
		}
		axis, err := op.Axis(n.Int("axis", unset), len(dims))
		if err != nil {
			return err
		}
		outer, width, inner := op.Sizes(dims, axis)
		if n.Opset < 13 {
			width, inner = width*inner, 1
		}
		g, y, dy := n.room(0), n.y(0), n.dy[0]
		for o := range outer {
			for i := range inner {
				total, at := 0.0, o*width*inner+i
				for k := at; k < at+width*inner; k += inner {
					if log {
						total += float64(dy[k])
					} else {
						total += float64(dy[k] * y[k])
					}
				}
				for k := at; k < at+width*inner; k += inner {
					if log {
						g[k] = dy[k] - float32(total*math.Exp(float64(y[k])))
					} else {
						g[k] = y[k] * (dy[k] - float32(total))
					}
				}
			}
		}
		return nil
	}
}

// normalized sets g to the gradient of the rows of x, of width elements, that are normalized, for the gradient
// dn of the normalized elements. normal, if not nil, gets these.
func normalized(g, x, dn, normal []float32, width int, epsilon float64, center bool) {
	for at := 0; width > 0 && at < len(x); at += width {
		row, d := x[at:][:width], dn[at:][:width]
		mean, square := 0.0, 0.0
		if center {
			for _, v := range row {
				mean += float64(v)
			}
			mean /= float64(width)
		}
		for _, v := range row {
			square += (float64(v) - mean) * (float64(v) - mean)
		}
		inverse := 1 / math.Sqrt(square/float64(width)+epsilon)
		total, along := 0.0, 0.0
		for i, v := range row {
			z := (float64(v) - mean) * inverse
			total += float64(d[i])
			along += float64(d[i]) * z
			if normal != nil {
				normal[at+i] = float32(z)
			}
		}
		if !center {
			total = 0
		}
		total, along = total/float64(width), along/float64(width)
		if g == nil {
			continue
		}
		for i, v := range row {
			g[at+i] = float32((float64(d[i]) - total - (float64(v)-mean)*inverse*along) * inverse)
		}
	}
}

// normalization is the rule of LayerNormalization and RMSNormalization.
func normalization(center bool) rule {
	return func(n *node) error {
		dims := n.In[0].Dims
		axis, err := op.Axis(n.Int("axis", -1), len(dims))
		if err != nil {
			return err
		}
		return normalizeRows(n, n.x(0), 1, 2, int(op.Product(dims[axis:])), float64(n.Float("epsilon", 1e-5)), center, n.room(0))
	}
}

// normalizeRows sets g, which may be nil, to the gradient of x, and the gradients of the inputs with scales and
// biases.
func normalizeRows(n *node, x []float32, scales, biases, width int, epsilon float64, center bool, g []float32) error {
	dims, dy := n.out[0].Dims, n.dy[0]
	dn := make([]float32, len(dy))
	factors := expand(n.x(scales), n.In[scales].Dims, dims)
	for i, v := range dy {
		dn[i] = v * factors[i]
	}
	var normal []float32
	if n.wanted(scales) {
		normal = make([]float32, len(x))
	}
	normalized(g, x, dn, normal, width, epsilon, center)
	if n.wanted(scales) {
		for i, v := range dy {
			normal[i] *= v
		}
		n.dx[scales] = reduce(normal, dims, n.In[scales].Dims)
	}
	if n.wanted(biases) {
		n.dx[biases] = reduce(dy, dims, n.In[biases].Dims)
	}
	return nil
}

// skipNormalization is the rule of SkipLayerNormalization: input, skip, gamma, beta and bias; or of
// SkipSimplifiedLayerNormalization: input, skip, gamma and bias. Output 3 is the sum that is normalized.
func skipNormalization(center bool) rule {
	return func(n *node) error {
		beta, bias := 3, 4
		if !center {
			beta, bias = len(n.In), 3
		}
		dims := n.In[0].Dims
		x := append([]float32(nil), n.x(0)...)
		for _, i := range []int{1, bias} {
			if n.Input(i) != nil {
				for k, v := range expand(n.x(i), n.In[i].Dims, dims) {
					x[k] += v
				}
			}
		}
		g := make([]float32, len(x))
		if n.dy[0] != nil {
			epsilon := float64(n.Float("epsilon", 1e-12))
			if err := normalizeRows(n, x, 2, beta, int(dims[len(dims)-1]), epsilon, center, g); err != nil {
				return err
			}
		}
		if len(n.dy) > 3 && n.dy[3] != nil {
			for i, v := range n.dy[3] {
				g[i] += v
			}
		}
		for _, i := range []int{0, 1, bias} {
			if n.wanted(i) {
				n.dx[i] = reduce(g, dims, n.In[i].Dims)
			}
		}
		return nil
	}
}

// batchNormalization is the rule of BatchNormalization with stored statistics, for its first three inputs.
func batchNormalization(n *node) error {
	if n.Is("training_mode") {
		return op.Unsupported("the gradient of training_mode")
	}
	if n.wanted(3) || n.wanted(4) {
		return op.Unsupported("the gradient of the statistics of BatchNormalization")
	}
	x, factors, means, variances := n.x(0), n.x(1), n.x(3), n.x(4)
	size := len(x)
	if len(n.In[0].Dims) > 1 {
		size = int(op.Product(n.In[0].Dims[2:]))
	}
	epsilon := float64(n.Float("epsilon", 1e-5))
	dx, df, db := n.room(0), n.room(1), n.room(2)
	for i, v := range n.dy[0] {
		c := i / size % len(factors)
		inverse := float32(1 / math.Sqrt(float64(variances[c])+epsilon))
		if dx != nil {
			dx[i] = v * factors[c] * inverse
		}
		if df != nil {
			df[c] += v * (x[i] - means[c]) * inverse
		}
		if db != nil {
			db[c] += v
		}
	}
	return nil
}

// instanceNormalization is the rule of InstanceNormalization.
func instanceNormalization(n *node) error {
	dims, channels := n.In[0].Dims, len(n.x(1))
	width := int(op.Product(dims[2:]))
	dn, factors := make([]float32, len(n.dy[0])), n.x(1)
	for i, v := range n.dy[0] {
		dn[i] = v * factors[i/width%channels]
	}
	normal := make([]float32, len(dn))
	normalized(n.room(0), n.x(0), dn, normal, width, float64(n.Float("epsilon", 1e-5)), true)
	df, db := n.room(1), n.room(2)
	for i, v := range n.dy[0] {
		c := i / width % channels
		if df != nil {
			df[c] += v * normal[i]
		}
		if db != nil {
			db[c] += v
		}
	}
	return nil
}

// part is the derivative of a reduction y of count elements by the element x.
type part func(x, y float64, count int) float64

// sameAs is the derivative of the largest or the smallest element.
func sameAs(x, y float64, _ int) float64 {
	if x == y {
		return 1
	}
	return 0
}

// reduction is the rule of an operator that reduces axes.
func reduction(of part) rule {
	return func(n *node) error {
		dims := n.In[0].Dims
		list := n.List(1, "axes")
		if len(list) == 0 && n.Is("noop_with_empty_axes") {
			return op.Unsupported("the gradient of noop_with_empty_axes")
		}
		marks, err := op.Axes(list, len(dims))
		if err != nil {
			return err
		}
		for i := range marks {
			marks[i] = marks[i] || len(list) == 0
		}
		return reduceBy(n, op.Without(dims, marks, true), of)
	}
}

// globalPool is the rule of a reduction of the spatial axes.
func globalPool(of part) rule {
	return func(n *node) error {
		kept := make([]int64, len(n.In[0].Dims))
		for i, d := range n.In[0].Dims {
			if kept[i] = 1; i < 2 {
				kept[i] = d
			}
		}
		return reduceBy(n, kept, of)
	}
}

// reduceBy is the rule of a reduction to dims, in which the axes that are gone have size 1.
func reduceBy(n *node, kept []int64, of part) error {
	g, x := n.room(0), n.x(0)
	y, dy := expand(n.y(0), kept, n.In[0].Dims), expand(n.dy[0], kept, n.In[0].Dims)
	count := len(x) / max(len(n.dy[0]), 1)
	for i := range g {
		g[i] = dy[i] * float32(of(float64(x[i]), float64(y[i]), count))
	}
	return nil
}

func averagePool(n *node) error {
	geometry, counts, err := products.AveragePoolGeometry(n.Call, n.In[0])
	if err != nil {
		return err
	}
	g := n.room(0)
	channels := int(op.Product(n.In[0].Dims[:2]))
	in, out := len(g)/channels, len(n.dy[0])/channels
	row := make([]float32, out)
	for c := range channels {
		for i, v := range n.dy[0][c*out:][:out] {
			row[i] = v / counts[i]
		}
		for t := range geometry.Taps() {
			convolve.AddRow(geometry, g[c*in:][:in], row, t, 0)
		}
	}
	return nil
}

// maxPool is the rule of MaxPool, which can say where each element comes from.
func maxPool(n *node) error {
	c := *n.Call
	c.Node = copyOf(n.Node)
	c.Node.Output = []string{"y", "places"}
	out, err := evaluate.Operate(&c)
	if err != nil {
		return err
	}
	if n.Is("storage_order") {
		return op.Unsupported("the gradient of storage_order")
	}
	g := n.room(0)
	for i, at := range execute.Numbers[int64](out[1]) {
		g[at] += n.dy[0][i]
	}
	return nil
}
