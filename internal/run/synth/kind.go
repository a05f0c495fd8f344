package synth

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
)

// kind is what an input is.
type kind string

const (
	image     kind = "image"
	waveform  kind = "sound"
	spectrum  kind = "magnitudes of a spectrum of sound"
	features  kind = "mel features of sound"
	memory    kind = "state"
	values    kind = "normal distribution"
	ids       kind = "ids"
	ones      kind = "ones"
	zeros     kind = "zeros"
	positions kind = "positions"
	segments  kind = "segments"
	length    kind = "length"
	constant  kind = "a constant"
	bits      kind = "0 or 1"
)

// subject is an input of the model, and what is known of it.
type subject struct {
	name string
	typ  dtype.DType
	axes []*onnxpb.TensorShapeProto_Dimension
	kind kind
	axis int // of channels of images, of frequencies of features

	content         content   // of images
	lo, hi          float64   // of images
	rows            int64     // ids are below it
	constant        []float64 // repeated
	mean, deviation []float64 // of values
}

// String says what the values are.
func (s *subject) String() string {
	switch s.kind {
	case image:
		return fmt.Sprintf("%s, %g to %g", s.content, s.lo, s.hi)
	case memory:
		return "state: zeros, then what the model returned"
	case ids:
		return fmt.Sprintf("ids below %d", s.rows)
	case constant:
		return strings.Trim(fmt.Sprint(s.constant), "[]")
	case values:
		if len(s.mean) > 0 {
			return "normal distribution, with the mean and deviation that the model divides out"
		}
	}
	return string(s.kind)
}

func has(name string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(name, p) })
}

// subject finds out what an input is.
func (g *graph) subject(info *onnxpb.ValueInfoProto) (*subject, error) {
	typ := info.GetType().GetTensorType()
	if typ == nil {
		return nil, errNotTensor
	}
	s := &subject{name: info.GetName(), typ: dtype.DType(typ.GetElemType()), axes: typ.GetShape().GetDim(), kind: values}
	if err := checkType(s.typ); err != nil {
		return nil, err
	}
	g.fixChannels(s)
	uses := g.uses(s.name)
	switch name := strings.ToLower(s.name); {
	case g.image(s, uses):
	case s.typ.Float():
		g.floats(s, name, uses)
	default:
		g.whole(s, name, uses)
	}
	return s, nil
}

var (
	stateNames  = regexp.MustCompile(`state|hidden|cache|past|memory|mems|^[hc](_?[0n]|x|_in)?$`)
	rateNames   = regexp.MustCompile(`^sr$|samp(le|ling)_?rate`)
	soundNames  = regexp.MustCompile(`wav|audio|pcm|speech|signal|sound|samples|noisy|mixture`)
	mapNames    = regexp.MustCompile(`mel|feat|fbank|spec|mfcc|audio|speech`)
	scalarNames = regexp.MustCompile(`speed|scale|temperature|ratio|rate|sigma|alpha|beta|weight|strength`)
)

// floats decides on an input of floats.
func (g *graph) floats(s *subject, name string, uses []use) {
	rank := len(s.axes)
	scalar := rank == 0 || rank == 1 && fixedProduct(s.axes) > 0 && fixedProduct(s.axes) <= 4
	switch {
	case strings.Contains(name, "mask"):
		s.kind = ones
	case rateNames.MatchString(name) && scalar:
		s.kind, s.constant = constant, []float64{16000}
	case name == "scales" && scalar: // of text-to-speech: noise, length, noise of lengths
		s.kind, s.constant = constant, []float64{0.667, 1, 0.8}
	case strings.Contains(name, "timestep") && rank <= 1:
		s.kind, s.constant = constant, []float64{500}
	case scalarNames.MatchString(name) && scalar:
		s.kind, s.constant = constant, []float64{1}
	case stateNames.MatchString(name) && rank >= 2:
		s.kind = memory
	case g.sound(s, name, uses):
	case rank <= 3 && g.rows(uses) > 0: // ids that are cast
		s.kind, s.rows = ids, g.rows(uses)
	default:
		g.normalized(s, uses)
	}
}

// whole decides on an input of integers or truth values.
func (g *graph) whole(s *subject, name string, uses []use) {
	s.rows = g.rows(uses)
	switch {
	case has(name, "pad") && has(name, "mask") && s.typ == dtype.Bool, has(name, "use_cache"):
		s.kind = zeros
	case strings.Contains(name, "mask"):
		s.kind = ones
	case s.typ == dtype.Bool:
		s.kind = bits
	case strings.Contains(name, "pos"):
		s.kind = positions
	case rateNames.MatchString(name):
		s.kind, s.constant = constant, []float64{16000}
	case strings.Contains(name, "timestep") && len(s.axes) <= 1 && s.rows == 0:
		s.kind, s.constant = constant, []float64{500}
	case has(name, "token_type", "segment") && (s.rows == 0 || s.rows >= 2):
		s.kind = segments
	case s.rows > 0:
		s.kind = ids
	case s.typ.Bits() == 16 && soundNames.MatchString(name):
		s.kind = waveform
	case strings.Contains(name, "len"):
		s.kind = length
	default:
		s.kind = bits
	}
}

// fixedProduct returns the number of elements, or 0 if an axis is free.
func fixedProduct(axes []*onnxpb.TensorShapeProto_Dimension) int64 {
	n := int64(1)
	for _, d := range axes {
		size, fixed := execute.FixedSize(d)
		if !fixed {
			return 0
		}
		n *= min(size, 1<<20)
	}
	return n
}

// side reports whether an axis may be the side of an image.
func side(d *onnxpb.TensorShapeProto_Dimension) bool {
	n, fixed := execute.FixedSize(d)
	return !fixed || n >= 8
}

func channels(d *onnxpb.TensorShapeProto_Dimension) bool {
	n, fixed := execute.FixedSize(d)
	return fixed && (n == 1 || n == 3 || n == 4)
}

// image reports whether an input is an image, and describes it: two sides, and one, three or four channels
// before or behind them.
func (g *graph) image(s *subject, uses []use) bool {
	if !s.typ.Float() && s.typ != dtype.Uint8 || g.rows(uses) > 0 || stateNames.MatchString(strings.ToLower(s.name)) {
		return false
	}
	a := s.axes
	if len(a) == 4 {
		a = a[1:]
	}
	convolved := slices.ContainsFunc(uses, func(u use) bool {
		return u.node.GetOpType() == "Conv" && u.place == 0 && len(u.node.Input) > 1 && len(g.stored[u.node.Input[1]].GetDims()) == 4
	})
	switch {
	case len(a) != 3 || len(s.axes) == 3 && !convolved && s.typ != dtype.Uint8:
		return false
	case channels(a[0]) && side(a[1]) && side(a[2]):
		s.axis = len(s.axes) - 3
	case channels(a[2]) && side(a[0]) && side(a[1]):
		s.axis = len(s.axes) - 1
	default:
		return false
	}
	n, _ := execute.FixedSize(s.axes[s.axis])
	if len(s.axes) == 4 && n == 1 && !convolved && mapNames.MatchString(strings.ToLower(s.name)) {
		return false
	}
	s.kind = image
	g.imageContent(s)
	s.lo, s.hi = g.imageRange(s, uses, n)
	return true
}

// fixChannels gives free channels the number that the kernel of a convolution has, as in exports of Optimum.
func (g *graph) fixChannels(s *subject) {
	if len(s.axes) < 3 {
		return
	}
	if _, fixed := execute.FixedSize(s.axes[1]); fixed {
		return
	}
	for _, n := range g.readers[s.name] {
		if n.GetOpType() != "Conv" || len(n.Input) < 2 || n.Input[0] != s.name {
			continue
		}
		kernel, groups := g.stored[n.Input[1]].GetDims(), int64(1)
		for _, a := range n.Attribute {
			if a.GetName() == "group" {
				groups = a.GetI()
			}
		}
		if len(kernel) == len(s.axes) && kernel[1] > 0 && groups > 0 {
			s.axes = slices.Clone(s.axes)
			s.axes[1] = &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: kernel[1] * groups}}
			return
		}
	}
}

// imageRange returns the range that a model takes images in: as its own arithmetic shows, or as is usual.
func (g *graph) imageRange(s *subject, uses []use, channels int64) (lo, hi float64) {
	if s.typ == dtype.Uint8 {
		return 0, 255
	}
	for _, u := range uses {
		for _, l := range u.light {
			c := math.Abs(mean(l.second))
			switch {
			case l.op == "Mul" && c > 0 && c < 0.03, l.op == "Div" && c > 30, (l.op == "Sub" || l.op == "Add") && c > 20:
				return 0, 255
			case (l.op == "Sub" || l.op == "Add") && c > 0.2 && c < 0.8, l.op == "Div" && c > 0.1 && c < 0.9:
				return 0, 1
			}
		}
	}
	switch {
	case g.file.Proto.GetProducerName() == "CNTK":
		return 0, 255
	case g.metadata("imgsz") != "" || channels == 1 || g.imageToImage(s, channels):
		return 0, 1
	}
	return -1, 1
}

// imageToImage reports whether an output has as many channels as the image, and sides.
func (g *graph) imageToImage(s *subject, channels int64) bool {
	return slices.ContainsFunc(g.proto.GetOutput(), func(o *onnxpb.ValueInfoProto) bool {
		a := o.GetType().GetTensorType().GetShape().GetDim()
		if len(a) != len(s.axes) {
			return false
		}
		n, fixed := execute.FixedSize(a[s.axis])
		return fixed && n == channels && side(a[len(a)-2])
	})
}

func (g *graph) metadata(key string) string {
	for _, p := range g.file.Proto.GetMetadataProps() {
		if p.GetKey() == key {
			return p.GetValue()
		}
	}
	return ""
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(max(len(x), 1))
}

// sound reports whether an input is sound, and describes it.
func (g *graph) sound(s *subject, name string, uses []use) bool {
	rank := len(s.axes)
	if rank == 0 || rank > 4 {
		return false
	}
	last, fixed := execute.FixedSize(s.axes[rank-1])
	if soundNames.MatchString(name) || rank > 1 && onlyLast(s.axes) {
		if fixed && slices.Contains([]int64{129, 161, 201, 257, 513, 1025}, last) {
			s.kind = spectrum
			return true
		}
	}
	if rank == 3 && mapNames.MatchString(name) || rank == 3 && g.convolves(uses) {
		for _, axis := range []int{2, 1} {
			if n, ok := execute.FixedSize(s.axes[axis]); ok && slices.Contains([]int64{40, 64, 80, 128}, n) {
				s.kind, s.axis = features, axis
				return true
			}
		}
	}
	long := !fixed || last >= 160
	if rank <= 3 && long && (soundNames.MatchString(name) || rank > 1 && onlyLast(s.axes) && rank == 3 || g.transformed(uses)) {
		s.kind = waveform
		return true
	}
	return false
}

// onlyLast reports whether all axes but the last are fixed at 1, and the last at 100 or more.
func onlyLast(axes []*onnxpb.TensorShapeProto_Dimension) bool {
	for i, d := range axes {
		n, fixed := execute.FixedSize(d)
		if !fixed || i < len(axes)-1 && n != 1 || i == len(axes)-1 && n < 100 {
			return false
		}
	}
	return true
}

// convolves reports whether a convolution of one dimension reads a value.
func (g *graph) convolves(uses []use) bool {
	return slices.ContainsFunc(uses, func(u use) bool {
		return u.node.GetOpType() == "Conv" && u.place == 0 && len(u.node.Input) > 1 && len(g.stored[u.node.Input[1]].GetDims()) == 3
	})
}

// transformed reports whether a value is read as a wave is: by a Fourier transform, or by a convolution of
// one channel with long kernels.
func (g *graph) transformed(uses []use) bool {
	return slices.ContainsFunc(uses, func(u use) bool {
		if u.node.GetOpType() == "STFT" {
			return true
		}
		if u.node.GetOpType() != "Conv" || u.place != 0 || len(u.node.Input) < 2 {
			return false
		}
		d := g.stored[u.node.Input[1]].GetDims()
		return len(d) == 3 && d[1] == 1 && d[2] >= 8
	})
}

// normalized reads off the mean and deviation of an input that the model normalizes first.
func (g *graph) normalized(s *subject, uses []use) {
	if len(s.axes) == 0 {
		return
	}
	n, fixed := execute.FixedSize(s.axes[len(s.axes)-1])
	if !fixed {
		return
	}
	for _, u := range uses {
		if len(u.light) < 2 || u.light[0].op != "Sub" && u.light[0].op != "Add" || int64(len(u.light[0].second)) != n {
			continue
		}
		second := u.light[1]
		if len(second.second) != int(n) || second.op != "Mul" && second.op != "Div" {
			continue
		}
		s.mean, s.deviation = slices.Clone(u.light[0].second), slices.Clone(second.second)
		for i := range s.mean {
			if u.light[0].op == "Add" {
				s.mean[i] = -s.mean[i]
			}
			if second.op == "Mul" {
				s.deviation[i] = 1 / s.deviation[i]
			}
			if d := math.Abs(s.deviation[i]); !(d < 1e6) {
				s.deviation[i] = 0
			}
		}
		return
	}
}

// state is an input whose next value is an output.
type state struct{ input, output int }

// states finds the states: inputs that are named as such, and inputs of the shape of one output, in which no
// axis is free. Other inputs must remain.
func (g *graph) states(subjects []*subject) (found []state) {
	outputs := g.proto.GetOutput()
	taken := map[int]bool{}
	for i, s := range subjects {
		shaped := s.kind == values && len(s.axes) >= 3 && fixedProduct(s.axes) > 0 && len(subjects) > 1
		if s.kind != memory && !shaped {
			continue
		}
		var fits []int
		for k, o := range outputs {
			typ := o.GetType().GetTensorType()
			if !taken[k] && dtype.DType(typ.GetElemType()) == s.typ && slices.EqualFunc(typ.GetShape().GetDim(), s.axes, sameAxis) {
				fits = append(fits, k)
			}
		}
		if len(fits) == 0 || shaped && len(fits) > 1 {
			continue
		}
		best := slices.MaxFunc(fits, func(a, b int) int {
			return alike(outputs[a].GetName(), s.name) - alike(outputs[b].GetName(), s.name)
		})
		s.kind, taken[best] = memory, true
		found = append(found, state{i, best})
	}
	return found
}

// sameAxis reports whether an output's axis may have the size of an input's. Some writers leave axes of
// outputs free.
func sameAxis(output, input *onnxpb.TensorShapeProto_Dimension) bool {
	m, fixed := execute.FixedSize(output)
	n, also := execute.FixedSize(input)
	if also {
		return !fixed || m == n
	}
	return !fixed && (output.GetDimParam() == input.GetDimParam() || output.GetDimParam() == "" || input.GetDimParam() == "")
}

// alike counts the characters that names share at their beginning and end.
func alike(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	k := 0
	for k < min(len(a), len(b))-n && a[len(a)-1-k] == b[len(b)-1-k] {
		k++
	}
	return n + 2*k
}
