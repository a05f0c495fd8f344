package tune

import (
	"context"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
)

// weighedName is a file beside the journal: a line for each format, with the damage of each weight.
const weighedName = "weighed.jsonl"

// weighed measures damages, and keeps them for a search that goes on.
type weighed struct {
	analyze.Damage
	path    string
	key     string
	samples int // that weigh; 0: not known yet
	lines   map[string]weighedLine
}

// weighedLine has what a format does to weights. A damage is nil if it cannot be measured.
type weighedLine struct {
	Key     string              `json:"key"`
	Format  string              `json:"format"`
	Samples int                 `json:"samples"`
	Damages map[string]*float64 `json:"damages"`
}

// openWeighed reads what a folder has for a key.
func openWeighed(folder string, key ...string) (*weighed, error) {
	w := &weighed{path: filepath.Join(folder, weighedName), key: strings.Join(key, " "), lines: map[string]weighedLine{}}
	return w, eachLine(w.path, func(raw []byte) {
		var line weighedLine
		if json.Unmarshal(raw, &line) == nil && line.Key == w.key {
			w.samples, w.lines[line.Format] = line.Samples, line
		}
	})
}

// Of implements analyze.Damage.
func (w *weighed) Of(ctx context.Context, m *onnxq.Model, opts onnxq.Options, weights []string) ([]float64, error) {
	raw, err := json.Marshal(opts.Precision) // it has the format
	if err != nil {
		return nil, err
	}
	format := string(raw)
	line, ok := w.lines[format]
	if ok && !slices.ContainsFunc(weights, func(name string) bool { _, ok := line.Damages[name]; return !ok }) {
		found := make([]float64, len(weights))
		for i, name := range weights {
			if found[i] = math.NaN(); line.Damages[name] != nil {
				found[i] = *line.Damages[name]
			}
		}
		return found, nil
	}
	found, err := w.Damage.Of(ctx, m, opts, weights)
	if err != nil {
		return nil, err
	}
	line = weighedLine{w.key, format, w.samples, map[string]*float64{}}
	for i, name := range weights {
		line.Damages[name] = nil
		if v := found[i]; !math.IsNaN(v) && !math.IsInf(v, 0) {
			line.Damages[name] = &v
		}
	}
	w.lines[format] = line
	return found, appendLine(w.path, line)
}
