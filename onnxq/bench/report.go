package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/msg"
)

// Report has the figures of models that ran in turns. Times are in milliseconds.
type Report struct {
	Runtime string  `json:"runtime"`         // ONNX Runtime and its version
	Library string  `json:"library"`         // the file
	Threads int     `json:"threads"`         // as given; 0: as ONNX Runtime chooses
	Inputs  []Input `json:"inputs"`          // of all models
	Random  bool    `json:"random"`          // the inputs are random
	Sizes   string  `json:"sizes,omitempty"` // of symbolic dimensions, if the inputs are random

	Rounds      int     `json:"rounds"`      // turns of each model
	Seconds     float64 `json:"seconds"`     // of the measurement
	Uncertainty float64 `json:"uncertainty"` // the largest standard error of a p50 or of its ratio, relative to it; 1 after one round
	Settled     bool    `json:"settled"`     // the uncertainty is small enough

	Models []Model `json:"models"`
}

// Input describes an input of the models.
type Input struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Dims  []int64 `json:"shape"`
}

// Model has the figures of a model.
type Model struct {
	Path       string   `json:"path"`
	Runs       int      `json:"runs"` // that were measured
	P50        float64  `json:"p50_ms"`
	P90        float64  `json:"p90_ms"`
	CPU        float64  `json:"cpu_ms"`      // CPU time of a run, on all threads
	Ratio      float64  `json:"ratio"`       // of p50 to the first model's, the median of the rounds; 0: unknown
	CPURatio   float64  `json:"cpu_ratio"`   // of CPU time, likewise
	Load       float64  `json:"load_ms"`     // time to load the model, the shortest of at least two
	PeakMemory int64    `json:"peak_memory"` // of the processes that ran it, in bytes; 0: unknown
	Bytes      int64    `json:"bytes"`       // the model file and its external data
	Profile    *Profile `json:"profile"`     // where the time goes

	nodes int
}

// Profile has the time of each operator, from ONNX Runtime's profile. Figures are averages of the
// fastest quarter of the profiled runs. Operators, Dequantize and Between add up to Run.
type Profile struct {
	Runs       int        `json:"runs"`       // that were averaged
	Run        float64    `json:"run_ms"`     // with the profile, which takes time itself
	Operators  []Operator `json:"operators"`  // without Dequantize, the longest first
	Dequantize Operator   `json:"dequantize"` // DequantizeLinear
	Between    float64    `json:"between_ms"` // outside of operators
}

// Operator has the time of all nodes with an operator, without the nodes in their subgraphs.
type Operator struct {
	Name  string  `json:"name"`
	Nodes float64 `json:"nodes"` // that ran in a run
	Time  float64 `json:"ms"`
	Share float64 `json:"share"` // of the run
}

// String returns tables of the models and of operators.
func (r *Report) String() string {
	var b strings.Builder
	table(&b, r.modelRows())
	b.WriteByte('\n')
	table(&b, r.operatorRows())
	b.WriteByte('\n')
	for _, line := range r.facts() {
		fmt.Fprintf(&b, "%-9s  %s\n", line[0], line[1])
	}
	return b.String()
}

func table(b *strings.Builder, rows [][]string) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	w.Flush()
}

func (r *Report) modelRows() [][]string {
	rows := [][]string{{"", "MODEL", "P50", "P90", "CPU", "RATIO", "CPU RATIO", "LOAD", "MEMORY", "SIZE"}}
	for i, m := range r.Models {
		rows = append(rows, []string{fmt.Sprint(i + 1), pathText(m.Path), timeText(m.P50), timeText(m.P90), timeText(m.CPU),
			ratioText(m.Ratio), ratioText(m.CPURatio), timeText(m.Load), bytesText(m.PeakMemory), bytesText(m.Bytes)})
	}
	return rows
}

// listedOperators is the number of operators that have a row.
const listedOperators = 8

// operatorRows has a column for each model. The operators with the longest times have a row each.
func (r *Report) operatorRows() [][]string {
	heading, longest := []string{"OPERATOR"}, map[string]float64{}
	for i, m := range r.Models {
		heading = append(heading, fmt.Sprint(i+1))
		for _, op := range m.Profile.Operators {
			longest[op.Name] = max(longest[op.Name], op.Share)
		}
	}
	names := make([]string, 0, len(longest))
	for name := range longest {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(longest[b], longest[a]), cmp.Compare(a, b))
	})
	listed := names[:min(len(names), listedOperators)]
	rows := [][]string{heading}
	row := func(name string, of func(p *Profile) (ms float64, ran bool)) {
		cells := []string{msg.Clean(name)}
		for _, m := range r.Models {
			cell := "-"
			if ms, ran := of(m.Profile); ran {
				cell = fmt.Sprintf("%s %.0f %%", timeText(ms), 100*ratio(ms, m.Profile.Run))
			}
			cells = append(cells, cell)
		}
		rows = append(rows, cells)
	}
	for _, name := range listed {
		row(name, func(p *Profile) (float64, bool) { return p.sum(func(op string) bool { return op == name }) })
	}
	if len(listed) < len(names) {
		row(fmt.Sprintf("%d others", len(names)-len(listed)), func(p *Profile) (float64, bool) {
			return p.sum(func(op string) bool { return !slices.Contains(listed, op) })
		})
	}
	row(dequantize, func(p *Profile) (float64, bool) { return p.Dequantize.Time, p.Dequantize.Nodes > 0 })
	row("between operators", func(p *Profile) (float64, bool) { return p.Between, true })
	row("run with profile", func(p *Profile) (float64, bool) { return p.Run, true })
	return rows
}

// sum adds up the time of some operators. ran reports whether there are any.
func (p *Profile) sum(of func(op string) bool) (ms float64, ran bool) {
	for _, op := range p.Operators {
		if of(op.Name) {
			ms, ran = ms+op.Time, true
		}
	}
	return ms, ran
}

func (r *Report) facts() [][2]string {
	threads := "threads as ONNX Runtime chooses"
	if r.Threads > 0 {
		threads = english.Plural(r.Threads, "thread", "")
	}
	var inputs []string
	for _, in := range r.Inputs[:min(len(r.Inputs), 4)] {
		inputs = append(inputs, msg.Clean(in.Name)+" "+msg.Shape(in.Dims, "x")+" "+in.DType)
	}
	if n := len(r.Inputs) - len(inputs); n > 0 {
		inputs = append(inputs, fmt.Sprintf("%d others", n))
	}
	text := strings.Join(inputs, ", ")
	if r.Random {
		text += "; random"
		if r.Sizes != "" {
			text += ", of " + clean(r.Sizes)
		}
	}
	facts := [][2]string{{"runtime", r.Runtime + ", " + threads}, {"inputs", text}}
	measured := fmt.Sprintf("%s in %.1f s", english.Plural(r.Rounds, "round", ""), r.Seconds)
	if r.Settled {
		return append(facts, [2]string{"measured", measured + fmt.Sprintf("; settled, p50 and ratio ± %.1f %%", 100*r.Uncertainty)})
	}
	measured += fmt.Sprintf("; not settled, p50 and ratio ± %.1f %%", 100*r.Uncertainty)
	if r.Rounds < leastRounds {
		measured += fmt.Sprintf(", of fewer than %d rounds", leastRounds)
	}
	return append(facts, [2]string{"measured", measured},
		[2]string{"hint", "end other programs, or let it run for longer: --seconds N"})
}

// pathText has the end of a long path.
func pathText(path string) string {
	const most = 56
	if r := []rune(path); len(r) > most {
		path = "…" + string(r[len(r)-most:])
	}
	return clean(path)
}

// clean escapes what could control a terminal.
func clean(text string) string {
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

func timeText(ms float64) string {
	switch {
	case ms >= 99.95:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 9.995:
		return fmt.Sprintf("%.1f ms", ms)
	case ms >= 0.9995:
		return fmt.Sprintf("%.2f ms", ms)
	}
	return fmt.Sprintf("%.3f ms", ms)
}

func ratioText(x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", x)
}

func bytesText(n int64) string {
	if n == 0 {
		return "-"
	}
	return humanize.IBytes(uint64(n))
}
