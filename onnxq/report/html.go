package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/msg"
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/inspect"
	"onnxquant/onnxq/verify"
)

//go:embed page.tmpl
var pageText string

//go:embed page.css
var styleText string

//go:embed page.js
var scriptText string

// Head is how every page begins.
const Head = "<!doctype html><!--onnxquant report-->\n"

// WriteHTML writes the report as one self-contained HTML page.
func (r *Report) WriteHTML(w io.Writer) error {
	v, err := r.view()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, Head); err != nil {
		return err
	}
	return pageTemplate.Execute(w, v)
}

var flagName = regexp.MustCompile(`--[a-z]+(-[a-z]+)*`)

// flagsWhole escapes a text, in which no line ends inside of a flag.
func flagsWhole(text string) template.HTML {
	return template.HTML(flagName.ReplaceAllString(template.HTMLEscapeString(text), `<span class="wide">$0</span>`))
}

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"base":     func(p string) string { return path.Base(filepath.ToSlash(p)) },
	"bytes":    byteText,
	"percent":  percentText,
	"number":   numberText,
	"decibels": decibelText,
	"millis":   func(ms float64) string { return fmt.Sprintf("%.3g ms", ms) },
	"before":   func(i int) int { return i - 1 },
	"mark":     func(v verify.Verdict) string { return marks[v] },
	"effect":   func(e inspect.Effect) string { return effectMarks[e] + " " + string(e) },
	"join":     joined,
	"command":  flagsOf,
	"named":    func(w Weight) string { return named(w.Name, w.Node) },
	"shape":    shapeText,
	"clip":     clipped,
	"opsets":   opsetText,
	"flags":    flagsWhole,
}).Parse(pageText))

// marks of the verdicts. Only limits of the user on data of the user get a tick.
var marks = map[verify.Verdict]string{verify.Passed: "✓", verify.Sound: "○", verify.Poor: "▲", verify.Failed: "✗"}

var effectMarks = map[inspect.Effect]string{
	inspect.EffectWrong: "✗", inspect.EffectRefused: "✗", inspect.EffectSlow: "◐", inspect.EffectWaste: "◐", inspect.EffectNote: "·",
}

// view is the data of the template that the report itself does not have.
type view struct {
	*Report
	Style      template.CSS
	Script     template.JS
	ScriptHash string

	Title, Headline, Why string
	Failures             []string // the first failures
	Facts                []shownFact
	Chart                *chart
	Advice               []string
	Points               []shownPoint
	Formats              []shownFormat
	Shown                []Weight // the most expensive
	Several              bool     // quantized models
	PrintRows            int
	InputText            string
	FixTitle, FixText    string
	FixJSON, FixCommand  string
	SizeNote             string
	Files                []File
	Data                 *pageData
}

type shownFact struct {
	Label, Text, More string
	Value             float64
	Path              string // of the value, in the report as JSON
}

// shownPoint is a row of the table of sizes and errors.
type shownPoint struct {
	SizePoint
	Path, ErrorKey string // where the JSON has it, and its error
	Class, Mark    string // Mark says whether a model passed
}

// shownFormat counts the weights of a format. Color is its number in the style sheet.
type shownFormat struct {
	Name         string
	Count, Color int
	bytes        int64
}

// Limits of the page; the report as JSON has everything.
const (
	mostFailures = 20
	mostListed   = 12  // names in a cell
	mostRunes    = 160 // of a name
	printRows    = 22  // weights on paper
	mostRows     = compare.MostDetails
	colors       = 6
)

func (r *Report) view() (*view, error) {
	sum := sha256.Sum256([]byte(scriptText))
	v := &view{
		Report: r, Style: template.CSS(styleText), Script: template.JS(scriptText),
		ScriptHash: "sha256-" + base64.StdEncoding.EncodeToString(sum[:]),
		Several:    len(r.Outs) > 1, PrintRows: printRows, Files: append([]File{r.In}, r.Outs...), Formats: formatsOf(r.Weights), Shown: r.Weights[:min(mostRows, len(r.Weights))],
	}
	name := path.Base(filepath.ToSlash(v.Files[min(1, len(v.Files)-1)].Path))
	v.Title = name + " – onnxquant report"
	v.headline()
	v.facts()
	v.points()
	v.Chart = newChart(r)
	v.sizeNote()
	if r.Verification != nil && len(r.Verification.Failures) > 0 {
		v.Failures = firstOf(mostFailures, r.Verification.Failures)
	}
	v.InputText = "on the given inputs."
	if r.Random {
		v.InputText = "on made-up inputs, which show how errors spread; only real inputs (--inputs) show how good the model still is."
	}
	if err := v.suggestion(); err != nil {
		return nil, err
	}
	v.Data = newPageData(v.Shown, v.Formats)
	return v, nil
}

// headline says the verdict.
func (v *view) headline() {
	d := v.Judgement
	if d == nil {
		v.Headline = "Formats for each weight"
		v.Why = fmt.Sprintf("The recommended mix for %d weights: %s, error %s. No model was written or run.", len(v.Weights), byteText(v.Sizes.Recommended.Bytes), percentText(v.Sizes.Recommended.Error))
		return
	}
	v.Headline = capitalized(string(v.Verdict))
	v.Why = capitalized(strings.Join(firstOf(1, d.Reasons), ", and ")) + "."
	if v.Verdict == verify.Failed {
		v.Why = fmt.Sprintf("%s: %s", english.Plural(len(d.Failures), "failure", ""), clipped(d.Failures[0]))
	}
}

// capitalized returns a text with a capital at its beginning.
func capitalized(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

// facts are the numbers beneath the headline.
func (v *view) facts() {
	add := func(f shownFact) { v.Facts = append(v.Facts, f) }
	size, e, at := int64(0), 0.0, "outs.0"
	switch {
	case len(v.Outs) > 0:
		size, e = v.Outs[0].Bytes, v.Outs[0].Error
	case v.Sizes.Recommended != nil:
		size, e, at = v.Sizes.Recommended.Bytes, v.Sizes.Recommended.Error, "sizes.recommended"
	}
	more := "from " + byteText(v.In.Bytes)
	if change := msg.Resized(v.In.Bytes, size); change != "" {
		more += ", " + change
	}
	add(shownFact{"Size", byteText(size), more, float64(size), at + ".bytes"})
	if len(v.Weights) > 0 {
		more := fmt.Sprintf("of %s", english.Plural(v.Sizes.Count, "weight", ""))
		if len(v.Outs) > 0 && v.Sizes.Count > len(v.Weights) {
			more = fmt.Sprintf("of all %d weights that are compared; %s of the %d that this model quantizes", v.Sizes.Count, percentText(v.OwnError()), len(v.Weights))
		}
		add(shownFact{"Error of weights", percentText(e), more, e, at + ".error"})
	} else {
		add(shownFact{Label: "Error of weights", Text: "unknown", More: "no quantized weight was compared"})
	}
	broken := v.brokenOutputs()
	if broken > 0 {
		add(shownFact{Label: "Outputs", Text: "NaN or infinite", More: fmt.Sprintf("%d of %s", broken, english.Plural(len(v.Outs[0].Outputs), "output", ""))})
	}
	if worst := v.worstOutput(); worst >= 0 {
		o := v.Outs[0].Outputs[worst]
		on := ""
		if v.Random {
			on = ", on made-up inputs"
		}
		add(shownFact{"SQNR of outputs", decibelText(o.SQNR), "least, " + clipped(o.Name) + on, o.SQNR, fmt.Sprintf("outs.0.outputs.%d.sqnr_db", worst)})
		if d := o.Distribution; d != nil {
			add(shownFact{"Top-1 agreement", percentText(d.Top1), fmt.Sprintf("of %s, %s%s", english.Plural(d.Rows, "row", ""), clipped(o.Name), on), d.Top1, fmt.Sprintf("outs.0.outputs.%d.distribution.top1_agreement", worst)})
		}
	} else if v.Outputs != nil && broken == 0 {
		add(shownFact{Label: "Outputs", Text: "not compared", More: "see Outputs"})
	}
	if v.Judgement == nil {
		return
	}
	var bad []string
	for _, h := range v.Hazards {
		if (h.Effect == inspect.EffectRefused || h.Effect == inspect.EffectWrong) && !slices.Contains(bad, h.Runtime) {
			bad = append(bad, h.Runtime)
		}
	}
	if len(bad) == 0 {
		add(shownFact{Label: "Runtimes that fail", Text: "none known", More: "see Runtimes"})
		return
	}
	add(shownFact{Label: "Runtimes that fail", Text: failing + strings.Join(bad, ", "), More: "refused or computed wrongly there: see Runtimes"})
}

// failing begins the text of a fact that speaks against the model.
const failing = "✗ "

// Bad reports whether a fact speaks against the model.
func (f shownFact) Bad() bool { return strings.HasPrefix(f.Text, failing) }

// sizeNote says what the picture of sizes and errors shows.
func (v *view) sizeNote() {
	switch {
	case v.byOutputs() && v.Chart == nil:
		v.SizeNote = fmt.Sprintf("The model was calibrated: its codes keep the error of outputs small, not that of weights. The error of its outputs is %s. Name more models, such as one without calibration, to compare outputs.", percentText(v.Outs[0].OutputError))
	case v.byOutputs():
		v.SizeNote = "Error: of the output that differs most, relative to its root mean square. A model here was calibrated, so models are compared by outputs, not by weights. Formats: codes without data."
	default:
		v.SizeNote = fmt.Sprintf("Error: root mean square of the errors of %d weights, each divided by the root mean square of the weight. Line: the best mixes of the formats that were tried.", v.Sizes.Count)
	}
}

// brokenOutputs counts the outputs with elements that are NaN or infinite in one model only.
func (v *view) brokenOutputs() (n int) {
	if v.Outputs == nil {
		return 0
	}
	for _, o := range v.Outs[0].Outputs {
		if o.Broken > 0 {
			n++
		}
	}
	return n
}

// worstOutput returns the output with the least SQNR, or -1.
func (v *view) worstOutput() int {
	worst := -1
	if v.Outputs == nil || !v.Outputs.Compared {
		return worst
	}
	for i, o := range v.Outs[0].Outputs {
		if o.Elements > 0 && (worst < 0 || o.SQNR < v.Outs[0].Outputs[worst].SQNR) {
			worst = i
		}
	}
	return worst
}

// points sets the rows of the table of sizes and errors, smallest first, and the advice that follows
// from them.
func (v *view) points() {
	for i, o := range v.Outs {
		p := shownPoint{SizePoint{path.Base(filepath.ToSlash(o.Path)), o.Bytes, o.Error}, fmt.Sprintf("outs.%d", i), "error", "other", marks[o.Verdict] + " " + string(o.Verdict)}
		if v.byOutputs() {
			p.Error, p.ErrorKey = o.OutputError, "output_error"
		}
		if i == 0 {
			p.Class = "chosen"
		}
		v.Points = append(v.Points, p)
	}
	if p := v.Sizes.Recommended; p != nil {
		v.Points = append(v.Points, shownPoint{SizePoint{"the recommended mix", p.Bytes, p.Error}, "sizes.recommended", "error", "chosen", ""})
	}
	formats, key := v.Sizes.Candidates, "candidates"
	if v.byOutputs() {
		formats, key = v.Sizes.ByOutputs, "by_outputs"
	}
	for i, c := range formats {
		v.Points = append(v.Points, shownPoint{c, fmt.Sprintf("sizes.%s.%d", key, i), "error", "", ""})
	}
	slices.SortStableFunc(v.Points, func(a, b shownPoint) int { return int(min(max(a.Bytes-b.Bytes, -1), 1)) })
	if len(v.Outs) == 0 || v.byOutputs() {
		return
	}
	out := v.Outs[0]
	const matters = 0.02
	if p := v.Sizes.SameSize; p != nil && p.Error < out.Error*(1-matters) {
		v.Advice = append(v.Advice, fmt.Sprintf("In at most this size, a mix of these formats has an error of %s instead of %s (%+.0f %%).", percentText(p.Error), percentText(out.Error), 100*(p.Error/out.Error-1)))
	}
	if p := v.Sizes.SameError; p != nil && float64(p.Bytes) < float64(out.Bytes)*(1-matters) {
		v.Advice = append(v.Advice, fmt.Sprintf("With at most this error, a mix has %s instead of %s (%+.0f %%).", byteText(p.Bytes), byteText(out.Bytes), 100*(float64(p.Bytes)/float64(out.Bytes)-1)))
	}
	if v.Advice != nil {
		v.Advice = append(v.Advice, fmt.Sprintf("onnxquant --auto %d %s mix.onnx makes a mix of at most this size.", out.Bytes, path.Base(filepath.ToSlash(v.In.Path))))
	} else if v.Sizes.Frontier != nil {
		v.Advice = []string{"No mix of these formats is notably smaller with this error, or has notably less error in this size."}
	}
}

// suggestion sets the title and the text of the suggested precision_info.
func (v *view) suggestion() error {
	f := v.Fix
	if f == nil {
		return nil
	}
	raw, err := precisionText(f)
	if err != nil {
		return err
	}
	v.FixJSON = raw
	in := path.Base(filepath.ToSlash(v.In.Path))
	if len(v.Outs) == 0 {
		v.FixTitle = "The recommendation, as a precision_info"
		v.FixText = "Save it as mix.json for --precision-info, and convert:"
		v.FixCommand = fmt.Sprintf("onnxquant --precision-info mix.json %s out.onnx", in)
		return nil
	}
	v.FixTitle = fmt.Sprintf("A precision_info for the worst %s", english.Plural(f.Weights, "weight", ""))
	v.FixText = fmt.Sprintf("For each, the smallest format with at most half of its error. The error of the model becomes %s instead of %s, its size %s instead of %s. Save it as mix.json for --precision-info, and convert again:",
		percentText(f.After), percentText(f.Before), byteText(v.Outs[0].Bytes+f.Bytes), byteText(v.Outs[0].Bytes))
	flags := "FLAGS-OF-THE-CONVERSION"
	if made := v.Outs[0].Flags; made != "" {
		flags = made
	}
	v.FixCommand = fmt.Sprintf("onnxquant %s --precision-info mix.json %s out.onnx", flags, in)
	return nil
}

// precisionText writes a precision_info with an entry on each line.
func precisionText(f *Suggestion) (string, error) {
	var lines []string
	for _, e := range f.Precision.Entries() {
		key, err := json.Marshal(e.Pattern)
		if err != nil {
			return "", err
		}
		settings, err := json.Marshal(e.Override)
		if err != nil {
			return "", err
		}
		lines = append(lines, fmt.Sprintf("  %s: %s", msg.EscapedJSON(key), settings))
	}
	return "{\n" + strings.Join(lines, ",\n") + "\n}\n", nil
}

// formatsOf counts the weights of each format, the format with the most bytes first.
func formatsOf(weights []Weight) []shownFormat {
	var list []shownFormat
	for _, w := range weights {
		i := slices.IndexFunc(list, func(f shownFormat) bool { return f.Name == w.Format })
		if i < 0 {
			i, list = len(list), append(list, shownFormat{Name: w.Format})
		}
		list[i].Count++
		list[i].bytes += w.Bytes
	}
	slices.SortStableFunc(list, func(a, b shownFormat) int { return int(min(max(b.bytes-a.bytes, -1), 1)) })
	for i := range list {
		list[i].Color = min(i, colors-1)
	}
	return list
}

// Color returns the number of a format's colour.
func (v *view) Color(format string) int {
	return v.Formats[slices.IndexFunc(v.Formats, func(f shownFormat) bool { return f.Name == format })].Color
}

// Share returns a cost in percent of the largest.
func (v *view) Share(cost float64) float64 {
	if most := v.Weights[0].Cost; most > 0 {
		return math.Round(1000*cost/most) / 10
	}
	return 0
}
