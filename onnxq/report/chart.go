package report

import (
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/onnxq/verify"
)

// chart is the picture of sizes and errors, in units of its view box.
type chart struct {
	Width, Height            int
	Left, Right, Top, Bottom float64
	LeftText, BottomText     float64
	XTicks, YTicks           []tick
	Frontier                 string // points of a line
	line                     [][2]float64
	Marks                    []mark
}

type tick struct {
	At   float64
	Text string
}

// mark is a point of the chart. class is chosen, other or format.
type mark struct {
	X, Y         float64
	Class        string
	Label, Title string // Label is empty if there is no room for the name
	name         string
	TextX, TextY float64
	Anchor       string
}

// newChart draws sizes along a linear axis and errors along a logarithmic one. It returns nil if
// nothing has an error. Calibrated models are drawn by the errors of their outputs, beside the formats whose
// outputs are known.
func newChart(r *Report) *chart {
	points, byOutputs := chartPoints(r)
	if byOutputs && len(points) < 2 {
		return nil
	}
	x, y := span{math.Inf(1), 0}, span{math.Inf(1), 0}
	for _, p := range points {
		if p.Error > 0 {
			x.include(float64(p.Bytes))
			y.include(p.Error)
		}
	}
	if y.hi == 0 {
		return nil
	}
	x.widen(0.08 * max(x.hi-x.lo, x.hi/10))
	y.lo, y.hi = y.lo/1.3, y.hi*1.3
	c := &chart{Width: 600, Height: 340, Left: 52, Right: 588, Top: 16, Bottom: 304}
	c.LeftText, c.BottomText = c.Left-6, c.Bottom+16
	px := func(bytes float64) float64 { return tenth(c.Left + (bytes-x.lo)/(x.hi-x.lo)*(c.Right-c.Left)) }
	py := func(e float64) float64 {
		return tenth(c.Bottom - math.Log(e/y.lo)/math.Log(y.hi/y.lo)*(c.Bottom-c.Top))
	}
	for _, v := range x.ticks() {
		c.XTicks = append(c.XTicks, tick{px(v), byteTick(v)})
	}
	for _, v := range y.logTicks() {
		c.YTicks = append(c.YTicks, tick{py(v), fmt.Sprintf("%g %%", tenth(1000*v)/10)})
	}
	var line []string
	for _, p := range r.Sizes.Frontier {
		if b := float64(p.Bytes); !byOutputs && b >= x.lo && b <= x.hi && p.Error >= y.lo && p.Error <= y.hi {
			line = append(line, fmt.Sprintf("%g,%g", px(b), py(p.Error)))
			c.line = append(c.line, [2]float64{px(b), py(p.Error)})
		}
	}
	if len(line) > 1 {
		c.Frontier = strings.Join(line, " ")
	}
	for _, p := range points {
		if p.Error > 0 {
			c.Marks = append(c.Marks, mark{
				X: px(float64(p.Bytes)), Y: py(p.Error), Class: p.Class, name: clipTo(p.Name, 28),
				Title: fmt.Sprintf("%s: %s, error %s", clipped(p.Name), byteText(p.Bytes), percentText(p.Error)),
			})
		}
	}
	c.dropCovered()
	for i := range c.Marks {
		c.place(&c.Marks[i])
	}
	return c
}

// chartPoints lists the points of the chart: the models, then formats. byOutputs says that the errors are those
// of outputs.
func chartPoints(r *Report) (points []shownPoint, byOutputs bool) {
	byOutputs = r.byOutputs()
	for i, o := range r.Outs {
		class, e := "other", o.Error
		if i == 0 {
			class = "chosen"
		}
		if byOutputs {
			e = o.OutputError
		}
		points = append(points, shownPoint{SizePoint: SizePoint{path.Base(filepath.ToSlash(o.Path)), o.Bytes, e}, Class: class})
	}
	if byOutputs {
		for _, p := range r.Sizes.ByOutputs {
			points = append(points, shownPoint{SizePoint: p, Class: "format"})
		}
		return points, true
	}
	if p := r.Sizes.Recommended; p != nil {
		points = append(points, shownPoint{SizePoint: SizePoint{"recommended", p.Bytes, p.Error}, Class: "chosen"})
	}
	for _, p := range r.Sizes.Candidates {
		points = append(points, shownPoint{SizePoint: p, Class: "format"})
	}
	return points, false
}

// byOutputs reports whether models are compared by their outputs: one is calibrated, and the outputs of
// all are known.
func (r *Report) byOutputs() bool {
	calibrated := slices.ContainsFunc(r.Outs, func(o File) bool { return o.Calibrated })
	return calibrated && !slices.ContainsFunc(r.Outs, func(o File) bool { return o.OutputError == 0 })
}

// outputError is the largest relative error of an output, 0 if none is known.
func outputError(outputs []verify.Output) (e float64) {
	for _, o := range outputs {
		if o.Elements > 0 {
			e = max(e, errorOf(o.SQNR))
		}
	}
	return e
}

// dropCovered removes formats that lie on a model or on another format: one mark stands for both.
func (c *chart) dropCovered() {
	const near = 5
	var kept []mark
	for _, m := range c.Marks {
		covered := slices.ContainsFunc(kept, func(o mark) bool { return math.Hypot(o.X-m.X, o.Y-m.Y) < near })
		if m.Class != "format" || !covered {
			kept = append(kept, m)
		}
	}
	c.Marks = kept
}

// crossed reports whether the frontier goes through a rectangle.
func (c *chart) crossed(left, right, top, bottom float64) bool {
	const steps = 24
	for i := 1; i < len(c.line); i++ {
		a, b := c.line[i-1], c.line[i]
		for s := range steps + 1 {
			t := float64(s) / steps
			x, y := a[0]+t*(b[0]-a[0]), a[1]+t*(b[1]-a[1])
			if x > left && x < right && y > top && y < bottom {
				return true
			}
		}
	}
	return false
}

// place gives a mark a label where the label covers no other mark or label; else none.
func (c *chart) place(m *mark) {
	const perRune, height = 6.6, 14
	width := perRune * float64(len([]rune(m.name)))
	for _, try := range []struct {
		dx, dy float64
		anchor string
	}{{9, 0, "start"}, {-9, 0, "end"}, {9, -10, "start"}, {9, 10, "start"}, {-9, -10, "end"}, {-9, 10, "end"}, {9, -20, "start"}, {9, 20, "start"}} {
		x, y := m.X+try.dx, m.Y+try.dy
		left := x
		if try.anchor == "end" {
			left = x - width
		}
		if left < c.Left || left+width > c.Right || y < c.Top || y > c.Bottom {
			continue
		}
		free := !c.crossed(left, left+width, y-height/2, y+height/2)
		for i := range c.Marks {
			o := &c.Marks[i]
			size := 4.0
			if o.Class != "format" {
				size = 8
			}
			if o != m && o.X > left-size && o.X < left+width+size && math.Abs(o.Y-y) < height/2-2+size {
				free = false
			}
			if o.Label == "" {
				continue
			}
			wide := perRune * float64(len([]rune(o.Label)))
			start := o.TextX
			if o.Anchor == "end" {
				start -= wide
			}
			if math.Abs(o.TextY-y) < height && start < left+width && left < start+wide {
				free = false
			}
		}
		if free {
			m.Label, m.TextX, m.TextY, m.Anchor = m.name, tenth(x), tenth(y), try.anchor
			return
		}
	}
}

// span is a range of values.
type span struct{ lo, hi float64 }

func (s *span) include(v float64) { s.lo, s.hi = min(s.lo, v), max(s.hi, v) }

func (s *span) widen(by float64) { s.lo, s.hi = max(s.lo-by, 0), s.hi+by }

// ticks returns about five sizes that are round in a binary unit.
func (s span) ticks() (list []float64) {
	unit := math.Pow(1024, math.Floor(math.Log(max(s.hi, 1))/math.Log(1024)))
	step := unit * niceStep((s.hi-s.lo)/unit/5)
	for v := math.Ceil(s.lo/step) * step; v <= s.hi; v += step {
		list = append(list, v)
	}
	return list
}

// niceStep rounds up to 1, 2 or 5 times a power of ten.
func niceStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, n := range []float64{1, 2, 5} {
		if x <= n*power {
			return n * power
		}
	}
	return 10 * power
}

// logTicks returns 1, 2 and 5 times the powers of ten within the range, or only the powers if
// these are many.
func (s span) logTicks() (list []float64) {
	factors := []float64{1, 2, 5}
	if s.hi/s.lo > 1e4 {
		factors = factors[:1]
	}
	for power := math.Pow(10, math.Floor(math.Log10(s.lo))); power <= s.hi; power *= 10 {
		for _, f := range factors {
			if v := f * power; v >= s.lo && v <= s.hi {
				list = append(list, v)
			}
		}
	}
	return list
}

// byteTick writes a size without trailing zeros.
func byteTick(v float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i := 0
	for v >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	return fmt.Sprintf("%.4g %s", v, units[i])
}

func tenth(x float64) float64 { return math.Round(10*x) / 10 }

func clipTo(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n/2]) + "…" + string(r[len(r)-n/2:])
	}
	return s
}
