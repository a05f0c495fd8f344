package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/dustin/go-humanize/english"

	"onnxquant/onnxq/compare"
)

// pageData is the input of the page's script, in the order of the weights. Bars and strips are whole
// numbers from 0 to 1000, relative to the largest: finer steps are invisible.
type pageData struct {
	Formats []string    `json:"formats"` // of choices
	Grids   [][]float64 `json:"grids"`   // codes, shared by weights
	Weights []drawn     `json:"weights"`
}

// drawn is a weight. Its name, format, error and size are in its row of the list.
type drawn struct {
	Color    int          `json:"color"`
	Facts    []string     `json:"facts"`
	Hist     *drawnBins   `json:"hist,omitempty"`
	Channels *drawnStrip  `json:"channels,omitempty"`
	Position *drawnStrip  `json:"positions,omitempty"`
	Choices  [][3]float64 `json:"choices,omitempty"` // index in Formats, bytes, error
}

type drawnBins struct {
	From   float64 `json:"from"`
	To     float64 `json:"to"`
	Bins   []int   `json:"bins"`
	Grid   int     `json:"grid"` // index in Grids; -1: the values have no grid
	Counts []int   `json:"counts,omitempty"`
	Beyond float64 `json:"beyond"`
}

type drawnStrip struct {
	Most  float64 `json:"most"`
	Least float64 `json:"least"`
	Parts []int   `json:"parts"`
}

// mostStems is the largest grid whose codes are drawn as often as they occur.
const mostStems = 64

func newPageData(weights []Weight, formats []shownFormat) *pageData {
	d := &pageData{Formats: []string{}, Grids: [][]float64{}, Weights: []drawn{}}
	grids := map[string]int{} // by format
	for i := range weights {
		w := &weights[i]
		made := drawn{Color: formats[slices.IndexFunc(formats, func(f shownFormat) bool { return f.Name == w.Format })].Color, Facts: factsOf(w)}
		for _, choice := range w.Choices {
			at := slices.Index(d.Formats, choice.Name)
			if at < 0 {
				at, d.Formats = len(d.Formats), append(d.Formats, choice.Name)
			}
			made.Choices = append(made.Choices, [3]float64{float64(at), float64(choice.Bytes), rounded(choice.Error)})
		}
		if t := w.Detail; t != nil {
			made.Hist = &drawnBins{From: t.From, To: t.To, Bins: scaled(t.Bins), Grid: -1, Beyond: t.Beyond}
			if len(t.Codes) > 0 {
				made.Hist.Grid = d.grid(grids, w.Format, weights)
				made.Hist.Counts = counts(d.Grids[made.Hist.Grid], t.Codes)
			}
			made.Channels, made.Position = stripOf(t.Channels), stripOf(t.Positions)
		}
		d.Weights = append(d.Weights, made)
	}
	return d
}

// grid returns the grid of a format: all the codes that its weights have.
func (d *pageData) grid(grids map[string]int, format string, weights []Weight) int {
	if at, ok := grids[format]; ok {
		return at
	}
	var codes []float64
	for _, w := range weights {
		if w.Format == format && w.Detail != nil {
			for _, c := range w.Detail.Codes {
				codes = append(codes, c.Value)
			}
		}
	}
	slices.Sort(codes)
	grids[format] = len(d.Grids)
	d.Grids = append(d.Grids, slices.Compact(codes))
	return grids[format]
}

// counts returns how often the codes of a grid occur, or nil if they are too many to be drawn.
func counts(grid []float64, codes []compare.CodeCount) []int {
	if len(grid) > mostStems {
		return nil
	}
	list := make([]int64, len(grid))
	for _, c := range codes {
		if i, ok := slices.BinarySearch(grid, c.Value); ok {
			list[i] = c.Count
		}
	}
	return scaled(list)
}

// factsOf lists the facts about the selected weight that its row does not show, in the order of the
// labels in the script.
func factsOf(w *Weight) []string {
	worst, stored := "", w.Format
	if w.Form != "" && w.Form != w.Format {
		stored += " by " + clipped(w.Form)
	}
	errors := percentText(w.Error) + ", SQNR " + decibelText(w.SQNR)
	if w.Broken > 0 {
		errors = english.Plural(int(w.Broken), "element", "") + " NaN or infinite"
	}
	if b := w.Worst; b != nil {
		worst = fmt.Sprintf("SQNR %s, %d elements from %v", decibelText(b.SQNR), b.Length, b.At)
	}
	return []string{
		w.DType + " " + shapeText(w.Shape),
		stored,
		byteText(w.FloatBytes) + " → " + byteText(w.Bytes),
		errors,
		numberText(w.MaxError),
		worst,
	}
}

func numberText(x float64) string { return strconv.FormatFloat(x, 'g', 3, 64) }

func scaled(list []int64) []int {
	most := slices.Max(append([]int64{1}, list...))
	made := make([]int, len(list))
	for i, n := range list {
		made[i] = int(math.Round(1000 * float64(n) / float64(most)))
	}
	return made
}

func stripOf(parts []float64) *drawnStrip {
	if len(parts) == 0 {
		return nil
	}
	s := &drawnStrip{Most: slices.Max(parts), Least: slices.Min(parts), Parts: make([]int, len(parts))}
	for i, p := range parts {
		if s.Most > 0 {
			s.Parts[i] = int(math.Round(1000 * p / s.Most))
		}
	}
	return s
}

// rounded rounds to four digits.
func rounded(x float64) float64 {
	if x == 0 {
		return 0
	}
	unit := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*unit) / unit
}
