package samples

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
)

// Warnings lists problems of the samples that make calibration with them misleading, one sentence
// each: arrays used for inputs with other names, and inputs or channels that are equal in all samples.
// It reads all the data.
func (s *Samples) Warnings() (list []string, err error) {
	for _, source := range s.sources {
		if a, ok := source.(*arrays); ok {
			list = append(list, a.taken...)
		}
	}
	if s.n < 2 {
		return list, nil // nothing can vary
	}
	seen := make([]*variety, len(s.model.inputs))
	for i := range seen {
		seen[i] = &variety{}
	}
	below := make([]int, len(s.model.inputs)) // samples with minus infinity
	for inputs, err := range s.All() {
		if err != nil {
			return nil, err
		}
		for i, t := range inputs {
			if notFinite(t).below {
				below[i]++
			}
			seen[i].add(t, s.model.inputs[i])
		}
	}
	for i, n := range below {
		if name := s.model.inputs[i].GetName(); n > 0 && !isMask(name) {
			list = append(list, fmt.Sprintf("input %q has -infinity in %s: that is for masks, and a mistake elsewhere", name, english.Plural(n, "sample", "")))
		}
	}
	if !slices.ContainsFunc(seen, func(v *variety) bool { return v.varies }) {
		return append(list, fmt.Sprintf("all %d samples are the same, and tell no more than one: give samples that differ as much as inputs in use do", s.n)), nil
	}
	for i, v := range seen {
		what, rest := v.constant(s.model.inputs[i], i == s.model.ids)
		if what != "" {
			list = append(list, fmt.Sprintf("input %q: %s the same in all samples%s: if that is not so in use, give samples in which it varies", s.model.inputs[i].GetName(), what, rest))
		}
	}
	return list, nil
}

// variety is how much an input varies over the samples.
type variety struct {
	first    *execute.Tensor // of the first sample
	several  bool            // there are more samples, equal or not
	varies   bool
	axis     int // axis of the channels; 0: none
	channels []channel
}

// channel records whether a channel is constant.
type channel struct {
	value         float32 // the first
	known, varies bool
}

// add looks at an input of one sample.
func (v *variety) add(t *execute.Tensor, info *onnxpb.ValueInfoProto) {
	if v.first == nil {
		v.first = t
		if v.axis = channelAxis(info, t); v.axis > 0 {
			v.channels = make([]channel, t.Dims[v.axis])
		}
	} else if t != v.first {
		v.several = true
		v.varies = v.varies || !slices.Equal(t.Dims, v.first.Dims) || !bytes.Equal(t.Data, v.first.Data)
	}
	if v.axis > 0 {
		v.addChannels(t)
	}
}

func (v *variety) addChannels(t *execute.Tensor) {
	inner := 1
	for _, d := range t.Dims[v.axis+1:] {
		inner *= int(d)
	}
	at := 0
	var buf [1 << 12]float32
	for data := range slices.Chunk(t.Data, len(buf)*t.Size()) {
		x := buf[:len(data)/t.Size()]
		t.DType.Decode(x, data)
		for _, e := range x {
			c := &v.channels[at/inner%len(v.channels)]
			at++
			if !c.known {
				c.value, c.known = e, true
			} else if e != c.value {
				c.varies = true
			}
		}
	}
}

// constant says which part of an input is equal in all samples although it should differ, with
// details; "" if none is. An input with one sample for all is taken as intended; masks may be
// constant.
func (v *variety) constant(info *onnxpb.ValueInfoProto, ids bool) (what, rest string) {
	switch name := strings.ToLower(info.GetName()); {
	case !ids && !v.first.IsFloat() || v.first.Len() < 2 || !v.several || containsAny(name, "mask", "past", "cache"):
		return "", ""
	case !v.varies:
		return "it is", ""
	}
	same, example := 0, 0
	for i := len(v.channels) - 1; i >= 0; i-- {
		if !v.channels[i].varies {
			same, example = same+1, i
		}
	}
	if same == 0 {
		return "", ""
	}
	verb := "are"
	if same == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%d of its %d channels (axis %d) %s", same, len(v.channels), v.axis, verb), fmt.Sprintf(", such as number %d, which is %g", example, v.channels[example].value)
}

// channelAxis guesses the axis of the channels of a floating-point input. It is the shortest axis of
// fixed length above 1, except the first axis. For images, it is the second or the last axis. It
// returns 0 if there is no such axis.
func channelAxis(info *onnxpb.ValueInfoProto, t *execute.Tensor) (axis int) {
	dims := info.GetType().GetTensorType().GetShape().GetDim()
	rank := len(t.Dims)
	if !t.IsFloat() || len(dims) != rank {
		return 0
	}
	image := rank > 3
	for i, d := range dims {
		if i == 0 || image && i > 1 && i < rank-1 {
			continue
		}
		n, fixed := execute.FixedSize(d)
		if fixed && (n > 1 || image) && (axis == 0 || n < t.Dims[axis]) {
			axis = i
		}
	}
	if axis > 0 && t.Dims[axis] < 2 {
		return 0
	}
	return axis
}
