package tune

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"path/filepath"
	"strings"

	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/rules"
	"onnxquant/spec"
)

// weighedName is a file beside the journal: a line for each format, with the damage of each weight.
const weighedName = "weighed.jsonl"

// weighed measures damages, and keeps them for a search that goes on.
type weighed struct {
	analyze.Damage
	path    string
	key     string
	samples int // that weigh; 0: not known yet

	// Weights with less damage in the first anchor are not weighed in finer formats, those with more not in coarser ones.
	// 0: all are.
	harmless, hopeless float64

	lines map[string]weighedLine
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

// Of implements analyze.Damage. What it does not weigh is NaN.
func (w *weighed) Of(ctx context.Context, m *onnxq.Model, opts onnxq.Options, weights []string) ([]float64, error) {
	raw, err := json.Marshal(opts.Precision) // it has the format
	if err != nil {
		return nil, err
	}
	format := string(raw)
	line := weighedLine{w.key, format, w.samples, map[string]*float64{}}
	maps.Copy(line.Damages, w.lines[format].Damages)
	var missing []string
	for _, name := range weights {
		if _, ok := line.Damages[name]; !ok && !w.needless(format, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		found, err := w.Damage.Of(ctx, m, opts, missing)
		if err != nil {
			return nil, err
		}
		for i, name := range missing {
			line.Damages[name] = nil
			if v := found[i]; !math.IsNaN(v) && !math.IsInf(v, 0) {
				line.Damages[name] = &v
			}
		}
		w.lines[format] = line
		if err := appendLine(w.path, line); err != nil {
			return nil, err
		}
	}
	all := make([]float64, len(weights))
	for i, name := range weights {
		if all[i] = math.NaN(); line.Damages[name] != nil {
			all[i] = *line.Damages[name]
		}
	}
	return all, nil
}

// needless reports whether the damage of a weight in the first anchor makes that in another one unimportant.
func (w *weighed) needless(format, name string) bool {
	first := w.lines[formatKey(anchors[0])].Damages[name]
	if first == nil {
		return false
	}
	if format == formatKey(finest) {
		return *first < w.harmless
	}
	return w.hopeless > 0 && *first > w.hopeless
}

// formatKey is the format of a line in which a candidate is weighed.
func formatKey(c spec.Candidate) string {
	p, err := rules.NewPrecision(rules.PrecisionEntry{Pattern: "*", Override: c.Override()})
	if err != nil {
		return ""
	}
	raw, _ := json.Marshal(p)
	return string(raw)
}
