package compare

import (
	"cmp"
	"context"
	"math"
	"slices"

	"onnxquant/calib"
	"onnxquant/formats/errstat"
	"onnxquant/internal/lazy"
	"onnxquant/internal/recognize"
	"onnxquant/internal/shapes"
)

// Detail describes how well the codes of a weight cover its values, and where its errors are. Its size
// does not depend on the size of the weight.
type Detail struct {
	// Bins has a histogram of the float values, in equal bins between From and To. The first and the
	// last bin include the values beyond. With Codes, values are in units of the codes: divided by the
	// scale of their block, plus the zero point. Weights with more than 2^21 elements are sampled evenly.
	From float64 `json:"from"`
	To   float64 `json:"to"`
	Bins []int64 `json:"bins"`

	Codes  []CodeCount `json:"codes,omitempty"` // the finite codes that occur, ascending; none if there is no one scale for each block
	Beyond float64     `json:"beyond"`          // share of the values beyond the smallest and the largest code

	// Errors by place: the root mean square error of a part of the weight, divided by the root mean
	// square of the whole weight. Channels divides the channels, which share no scales, into parts.
	// Positions divides each channel into parts, in the order of the elements. Empty if there is only
	// one part.
	Channels  []float64 `json:"channels,omitempty"`
	Positions []float64 `json:"positions,omitempty"`
}

// CodeCount counts a code. A float code or a position in a table is given as the number it stands for,
// before scaling.
type CodeCount struct {
	Value float64 `json:"value"`
	Count int64   `json:"count"`
}

// MostDetails is the number of weights with a Detail: the weights with the largest error times size.
const MostDetails = 2000

const (
	partsOfWeight  = 48      // parts of Channels and Positions
	mostCodes      = 256     // more than this many are not listed
	sampleSize     = 1 << 20 // elements; larger weights are sampled, with at least this many
	surveyAccuracy = 10      // bits of the values that are counted
)

// survey collects a Detail while a weight is read.
type survey struct {
	blocks            cutting
	step              int64         // one stretch in step is counted
	code, scale, zero elementReader // by element of the weight; code is nil if values are counted as they are
	grid              *recognize.Decoder

	values *calib.Histogram
	counts map[float32]int64

	allChannels, allPositions int64
	channels, positions       []errstat.Stats // by part
}

// newSurvey prepares the survey of a weight of size elements that coded decodes to; coded may be
// nil. transposed says that coded is the transpose of the weight.
func newSurvey(blocks cutting, size int64, coded *recognize.Weight, transposed bool) (*survey, error) {
	h, err := calib.NewHistogram(surveyAccuracy)
	if err != nil {
		return nil, err
	}
	s := &survey{blocks: blocks, step: max(size/sampleSize, 1), values: h, counts: map[float32]int64{}}
	s.allChannels, s.allPositions = size/blocks.length, shapes.DivideUp(blocks.length, blocks.block)
	s.channels = make([]errstat.Stats, min(s.allChannels, partsOfWeight))
	s.positions = make([]errstat.Stats, min(s.allPositions, partsOfWeight))
	if coded == nil || coded.Constant.Decoder == nil {
		return s, nil
	}
	d := coded.Constant.Decoder
	if d.X == nil || d.S == nil || d.Mins != nil || d.X.Size() != size {
		return s, nil // no one scale turns codes into values
	}
	element := func(x *lazy.Tensor) elementReader {
		if transposed != coded.Transposed && len(d.X.Shape) >= 2 {
			return &transposedReader{c: x}
		}
		return x
	}
	s.grid, s.code, s.scale = d, element(d.X), element(d.S.Spread(d.ScaleMap, d.X.Shape))
	if d.Z != nil {
		s.zero = element(d.Z.Spread(d.ScaleMap, d.X.Shape))
	}
	return s, nil
}

// read counts the values and the codes of weight w, or of an even sample of it.
func (s *survey) read(ctx context.Context, a *lazy.Arena, w *lazy.Tensor) error {
	values, releaseValues := a.Float32s(stretch)
	codes, releaseCodes := a.Float32s(stretch)
	scales, releaseScales := a.Float32s(stretch)
	zeros, releaseZeros := a.Float32s(stretch)
	defer releaseValues()
	defer releaseCodes()
	defer releaseScales()
	defer releaseZeros()
	clear(zeros) // without zero points
	for at := int64(0); at < w.Size(); at += stretch * s.step {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n := min(stretch, w.Size()-at)
		if err := w.ReadAll(a, values[:n], at); err != nil {
			return err
		}
		if s.code != nil {
			if err := s.readCodes(a, codes[:n], scales[:n], zeros[:n], at); err != nil {
				return err
			}
			for i := range n {
				values[i] = values[i]/scales[i] + zeros[i]
			}
		}
		finite := values[:0]
		for _, v := range values[:n] {
			if !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) {
				finite = append(finite, v)
			}
		}
		if err := s.values.Observe(finite); err != nil {
			return err
		}
	}
	return nil
}

// readCodes reads codes, scales and zero points, and counts the codes.
func (s *survey) readCodes(a *lazy.Arena, codes, scales, zeros []float32, at int64) error {
	for _, part := range []struct {
		from elementReader
		to   []float32
	}{{s.code, codes}, {s.scale, scales}, {s.zero, zeros}} {
		if part.from == nil {
			continue // zeros stay zero
		}
		if err := part.from.ReadAll(a, part.to, at); err != nil {
			return err
		}
	}
	for _, c := range codes {
		if c-c != 0 {
			continue // NaN or infinity
		}
		if _, ok := s.counts[c]; ok || len(s.counts) <= mostCodes {
			s.counts[c]++
		}
	}
	return nil
}

// block adds the errors of a block that begins at element at.
func (s *survey) block(b errstat.Stats, at int64) {
	c := s.blocks
	row := at / c.inner
	channel, position := row/c.length*c.inner+at%c.inner, row%c.length/c.block
	s.channels[channel*int64(len(s.channels))/s.allChannels].Merge(b)
	s.positions[position*int64(len(s.positions))/s.allPositions].Merge(b)
}

// detail returns the counts as a Detail. all has the errors of the whole weight.
func (s *survey) detail(all errstat.Stats) *Detail {
	d := &Detail{Channels: relative(s.channels, all), Positions: relative(s.positions, all)}
	if len(s.counts) <= mostCodes {
		for c, n := range s.counts {
			d.Codes = append(d.Codes, CodeCount{float64(c), n})
		}
		slices.SortFunc(d.Codes, func(a, b CodeCount) int { return cmp.Compare(a.Value, b.Value) })
	}
	x := s.axis(d.Codes)
	d.From, d.To, d.Bins = x.from, x.to, make([]int64, x.bins)
	for v, n := range s.values.All() {
		i := int(math.Floor((v - x.from) / (x.to - x.from) * float64(x.bins)))
		d.Bins[min(max(i, 0), x.bins-1)] += int64(n)
		if v < x.least || v > x.greatest {
			d.Beyond += float64(n)
		}
	}
	d.Beyond = rounded(d.Beyond / float64(max(s.values.Count(), 1)))
	return d
}

// thin removes all details except those of the weights with the largest error times size.
func (m *matcher) thin() {
	slices.SortFunc(m.detailed, func(i, j int) int {
		v, w := &m.result.Weights[i], &m.result.Weights[j]
		return cmp.Or(cmp.Compare(w.cost(), v.cost()), cmp.Compare(v.Name, w.Name))
	})
	kept := min(MostDetails, len(m.detailed))
	for _, i := range m.detailed[kept:] {
		m.result.Weights[i].Detail = nil
	}
	m.detailed = m.detailed[:kept]
}

// cost is the error times the size.
func (w *WeightMatch) cost() float64 { return math.Pow(10, -w.SQNR/20) * float64(w.OutBytes) }

// axis is the range of a histogram. Values below least or above greatest are beyond the codes.
type axis struct {
	from, to        float64
	bins            int
	least, greatest float64
}

const usualBins = 64

// axis chooses the range of the bins: the range of the values, or slightly more than the range of the
// codes. An integer code is in the middle of a bin, because many values lie exactly there. For types
// with more codes than are listed, such as the int32 of biases, it uses the codes that occur.
func (s *survey) axis(codes []CodeCount) axis {
	if len(codes) == 0 {
		r, err := s.values.Range()
		if err != nil || r.Min == r.Max {
			r.Min, r.Max = r.Min-1, r.Min+1
		}
		return axis{r.Min, r.Max, usualBins, r.Min, r.Max}
	}
	if typ := s.grid.CodeType; typ.Integer() && (typ == s.grid.X.DType || s.grid.Grid != nil) {
		lo, hi := typ.Limits()
		x := axis{least: float64(lo) - 0.5, greatest: float64(hi) + 0.5}
		n, margin, perCode := x.greatest-x.least, 1.0, 5.0
		switch {
		case n > mostCodes:
			x.from, x.to, x.bins = codes[0].Value-margin, codes[len(codes)-1].Value+margin, usualBins
			return x
		case n <= 4:
			perCode = 9
		case n > 16:
			margin, perCode = 8, 1./4
		}
		x.from, x.to, x.bins = x.least-margin, x.greatest+margin, int((n+2*margin)*perCode)
		return x
	}
	least, greatest := codes[0].Value, codes[len(codes)-1].Value
	margin := max((greatest-least)/20, 1e-9)
	return axis{least - margin, greatest + margin, usualBins, least, greatest}
}

// relative returns the errors of the parts of a weight, or nil if there is only one.
func relative(parts []errstat.Stats, all errstat.Stats) []float64 {
	if len(parts) < 2 {
		return nil
	}
	list := make([]float64, len(parts))
	for i, p := range parts {
		if meanSquare := all.SumSq / float64(max(all.N, 1)); meanSquare > 0 {
			list[i] = rounded(math.Sqrt(p.MSE() / meanSquare))
		}
	}
	return list
}

// rounded rounds to three digits, enough for a picture.
func rounded(x float64) float64 {
	if x == 0 || math.IsInf(x, 0) {
		return 0
	}
	unit := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*unit) / unit
}
