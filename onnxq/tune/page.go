package tune

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"path/filepath"

	"github.com/dustin/go-humanize"
)

// pageHead begins the page: it is a report of onnxquant, as those of package onnxq/report.
const pageHead = "<!doctype html><!--onnxquant report-->\n"

// WriteHTML writes a page with the trials: size by loss, and a table. It loads nothing and runs no script.
func (r *Result) WriteHTML(w io.Writer) error {
	if _, err := io.WriteString(w, pageHead); err != nil {
		return err
	}
	return pageTemplate.Execute(w, newPage(r))
}

// page has the values of the template.
type page struct {
	*Result
	Goal, Command string
	Points        []point
	XTicks        []tick
	YTicks        []tick
	Rows          []row
}

type point struct {
	X, Y  float64
	Class string
	Title string
	ID    string
}

type tick struct {
	At   float64
	Text string
}

type row struct {
	ID, Class, Size, Loss, Time, Goal, Flags string

	Command string       // that makes the same bytes again
	Mix     template.URL // its precision_info, as a link; "": none
	MixName string
}

// The picture of the page, in pixels.
const (
	pageWidth, pageHeight = 760.0, 320.0
	pageMargin            = 60.0
)

func newPage(r *Result) *page {
	p := &page{Result: r, Goal: r.Goal.String(), Command: r.CommandLine()}
	if len(r.Command) == 0 {
		p.Command = ""
	}
	x, y := axis{low: math.Inf(1), high: math.Inf(-1)}, axis{low: math.Inf(1), high: math.Inf(-1)}
	for _, t := range r.Trials {
		if drawn(t) {
			x.hold(float64(t.Bytes))
			y.hold(shownLoss(t))
		}
	}
	for i, t := range r.Trials {
		class := "other"
		switch {
		case r.Winner != nil && flagsKey(t.Flags) == flagsKey(r.Winner.Flags):
			class = "winner"
		case r.RunnerUp != nil && flagsKey(t.Flags) == flagsKey(r.RunnerUp.Flags):
			class = "second"
		case t.Holds:
			class = "kept"
		}
		if t.Frontier {
			class += " frontier"
		}
		text := r.rowOf(t)
		text.ID, text.Class = fmt.Sprintf("t%d", i), class
		p.Rows = append(p.Rows, text)
		if drawn(t) {
			p.Points = append(p.Points, point{
				X: pageMargin + x.at(float64(t.Bytes))*(pageWidth-2*pageMargin), Y: pageHeight - pageMargin - y.at(shownLoss(t))*(pageHeight-2*pageMargin),
				Class: class, ID: text.ID, Title: text.Size + ", " + text.Loss + ": " + text.Flags})
		}
	}
	for _, share := range []float64{0, 0.5, 1} {
		p.XTicks = append(p.XTicks, tick{pageMargin + share*(pageWidth-2*pageMargin), humanize.IBytes(uint64(max(x.value(share), 0)))})
		p.YTicks = append(p.YTicks, tick{pageHeight - pageMargin - share*(pageHeight-2*pageMargin), fmt.Sprintf("%.2g", y.value(share))})
	}
	return p
}

// axis is logarithmic.
type axis struct{ low, high float64 }

func (a *axis) hold(v float64) { a.low, a.high = min(a.low, v), max(a.high, v) }

func (a *axis) at(v float64) float64 {
	if !(a.high > a.low) {
		return 0.5
	}
	return math.Log(v/a.low) / math.Log(a.high/a.low)
}

func (a *axis) value(share float64) float64 {
	if math.IsInf(a.low, 1) {
		return 0
	}
	return a.low * math.Pow(a.high/a.low, share)
}

func drawn(t Trial) bool {
	return t.Bytes > 0 && t.Failed == "" && !math.IsInf(t.loss, 1) && (t.Quality.Loss != nil || t.Quality.Score != nil)
}

// shownLoss is the loss of a trial on a logarithmic axis.
func shownLoss(t Trial) float64 {
	if t.Quality.Loss != nil {
		return max(t.Quality.Loss.Damage, 1e-9)
	}
	return max(t.loss, 1e-6)
}

func (result *Result) rowOf(t Trial) row {
	r := row{Size: humanize.Comma(t.Bytes), Goal: "no: " + t.Why, Flags: t.Label}
	switch {
	case t.Failed != "":
		r.Goal = "failed: " + t.Failed
	case t.Holds:
		r.Goal = "kept"
	}
	if q := t.Quality; q.Score != nil {
		r.Loss = fmt.Sprintf("score %.6g", *q.Score)
	} else if q.Loss != nil {
		r.Loss = fmt.Sprintf("damage %.3g", q.Loss.Damage)
		if q.Loss.SQNR != nil && result.Goal.MinSQNR != nil {
			r.Loss += fmt.Sprintf(", %.1f dB", *q.Loss.SQNR)
		}
		if q.Loss.Drop != nil {
			r.Loss += fmt.Sprintf(", %.3g %% changed", 100**q.Loss.Drop)
		}
	}
	if t.Time != nil {
		r.Time = fmt.Sprintf("%.2f", t.Time.Ratio)
	}
	mix := ""
	if t.candidate != nil && t.candidate.mix != nil {
		mix = mixOf(t.candidate, result.out)
		raw, _ := json.MarshalIndent(t.candidate.mix, "", "  ")
		r.Mix, r.MixName = template.URL("data:application/json;base64,"+base64.StdEncoding.EncodeToString(raw)), filepath.Base(mix)
	}
	if result.out != "" {
		r.Command = commandLine(arguments(t.Flags, mix, result.Input, result.out))
	}
	return r
}

var pageTemplate = template.Must(template.New("tune").Parse(`<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<title>tune: {{.Verdict}}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .2rem .6rem; border-bottom: 1px solid #8884; vertical-align: top; }
td.n { text-align: right; white-space: nowrap; } code, pre { font-family: ui-monospace, monospace; overflow-wrap: anywhere; white-space: pre-wrap; }
tr:target { outline: 2px solid #c60; } tr.winner, tr.winner.frontier { font-weight: 600; }
svg { width: 100%; height: auto; } circle { fill: #8888; } .frontier circle { stroke: currentColor; }
.kept circle { fill: #38c; } .second circle { fill: #5a3; } .winner circle { fill: #c60; } svg text { font-size: 12px; fill: currentColor; }
</style>
</head>
<body>
<h1>{{.Verdict}}: {{.Goal}}</h1>
<p>{{.Reason}}. The search ended because {{.Stopped}}.</p>
{{with .Command}}<p>The same bytes again:</p><pre>{{.}}</pre>{{end}}
{{with .Samples}}{{if .Calibration}}<p>Samples: {{.Calibration}} calibrated, {{.Choice}} chose, {{.Final}} judged at the end.</p>{{end}}{{end}}
<p>{{with .Winner}}<b>Chosen</b> is the orange point{{end}}{{with .RunnerUp}}, the runner-up the green one{{end}}. Blue points keep the goal on the samples that choose; points with an edge are the frontier. A point leads to its row. Open the flags of a row for the command that makes its model, and for the file with its mix.</p>
<svg viewBox="0 0 760 320" role="img" aria-label="size and loss of each trial">
{{range .XTicks}}<text x="{{.At}}" y="290" text-anchor="middle">{{.Text}}</text>{{end}}
{{range .YTicks}}<text x="50" y="{{.At}}" text-anchor="end">{{.Text}}</text>{{end}}
<text x="380" y="312" text-anchor="middle">size</text><text x="12" y="20">loss</text>
{{range .Points}}<a href="#{{.ID}}" class="{{.Class}}"><circle cx="{{.X}}" cy="{{.Y}}" r="6"><title>{{.Title}}</title></circle></a>
{{end}}</svg>
<table>
<thead><tr><th>Bytes<th>Loss<th>Time of a run / IN<th>Goal<th>Flags</tr></thead>
<tbody>
{{range .Rows}}<tr id="{{.ID}}" class="{{.Class}}"><td class="n">{{.Size}}<td>{{.Loss}}<td class="n">{{.Time}}<td>{{.Goal}}<td><details><summary><code>{{.Flags}}</code></summary>{{with .Command}}<pre>{{.}}</pre>{{end}}{{if .Mix}}<a href="{{.Mix}}" download="{{.MixName}}">{{.MixName}}</a>{{end}}</details></tr>
{{end}}</tbody>
</table>
</body>
</html>
`))
