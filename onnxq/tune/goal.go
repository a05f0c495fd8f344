package tune

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"onnxquant/onnxq"
	"onnxquant/onnxq/sensitivity"
)

// Objective is what a search makes as small as it can.
type Objective string

const (
	Smallest Objective = "smallest" // the size; the default
	Fastest  Objective = "fastest"  // the time of a run
	Best     Objective = "best"     // the loss
)

// Goal says which models are good enough, and which of them is wanted. A nil or 0 is no limit.
type Goal struct {
	Objective Objective `json:"objective"`

	MaxDrop  *Drop    `json:"max_drop,omitempty"`  // of the score; without a score, share of changed decisions
	MinScore *float64 `json:"min_score,omitempty"` // largest, if lower is better
	MaxKL    *float64 `json:"max_kl,omitempty"`    // mean KL divergence of an output with distributions, in nats
	MinSQNR  *float64 `json:"min_sqnr_db,omitempty"`

	MaxSize     int64         `json:"max_size,omitempty"`     // bytes
	MaxSlowdown float64       `json:"max_slowdown,omitempty"` // time of a run, over that of the float model
	MaxLatency  time.Duration `json:"max_latency_ns,omitempty"`
}

// Drop is how much of a score may be lost: an amount or, if it is relative, a share of the float model's.
type Drop struct {
	Amount   float64 `json:"amount"`
	Relative bool    `json:"relative"`
}

// ParseDrop parses 1% or 0.5.
func ParseDrop(text string) (d Drop, err error) {
	digits, percent := strings.CutSuffix(text, "%")
	if d.Amount, err = strconv.ParseFloat(digits, 64); err != nil || !(d.Amount >= 0) || math.IsInf(d.Amount, 1) {
		return d, fmt.Errorf("want a share such as 1%%, or an amount of the score such as 0.5")
	}
	if d.Relative = percent; percent {
		d.Amount /= 100
	}
	return d, nil
}

func (d Drop) String() string {
	if d.Relative {
		return fmt.Sprintf("%g%%", 100*d.Amount)
	}
	return fmt.Sprintf("%g", d.Amount)
}

// limited reports whether the goal limits what is lost.
func (g *Goal) limited() bool {
	return g.MaxDrop != nil || g.MinScore != nil || g.MaxKL != nil || g.MinSQNR != nil
}

// Bounded reports whether the goal bounds the size or the time.
func (g *Goal) Bounded() bool { return g.MaxSize > 0 || g.timed() }

// timed reports whether the goal bounds the time.
func (g *Goal) timed() bool { return g.MaxSlowdown > 0 || g.MaxLatency > 0 }

// needsTime reports whether candidates must be timed.
func (g *Goal) needsTime() bool { return g.timed() || g.Objective == Fastest }

// Quality is what a judge measures.
type Quality struct {
	Score *float64          `json:"score,omitempty"`
	Loss  *onnxq.OutputLoss `json:"loss,omitempty"` // of the outputs, against the float model's
}

// limits are those of the outputs.
func (g *Goal) limits(scored bool) sensitivity.Limits {
	l := sensitivity.Limits{KL: g.MaxKL, SQNR: g.MinSQNR}
	if g.MaxDrop != nil && !scored {
		l.Drop = &g.MaxDrop.Amount
	}
	return l
}

// lost says which limits of the loss a model breaks; "" if none.
func (g *Goal) lost(float, q Quality, lower bool) string {
	var all []string
	if q.Loss != nil {
		l := g.limits(q.Score != nil)
		if text := l.Broken(*q.Loss); text != "" {
			all = append(all, text)
		}
		if l.KL != nil && q.Loss.KL == nil || l.SQNR != nil && q.Loss.SQNR == nil || l.Drop != nil && q.Loss.Drop == nil || q.Loss.Damage == math.MaxFloat64 {
			all = append(all, "outputs that are NaN or infinite")
		}
	}
	if q.Score != nil && float.Score != nil {
		if d := g.MaxDrop; d != nil {
			most := d.Amount
			if d.Relative {
				most *= math.Abs(*float.Score)
			}
			// A rounding error of the subtraction is no drop.
			if drop := dropOf(*float.Score, *q.Score, lower); !(drop <= most*(1+1e-9)+1e-12) {
				all = append(all, fmt.Sprintf("a score of %.6g, which is %.4g worse than %.6g (--max-drop %v)", *q.Score, drop, *float.Score, *d))
			}
		}
		if least := g.MinScore; least != nil && !(dropOf(*least, *q.Score, lower) <= 0) {
			all = append(all, fmt.Sprintf("a score of %.6g (--min-score %g)", *q.Score, *least))
		}
	}
	return strings.Join(all, ", ")
}

// dropOf is how much worse a score is than another.
func dropOf(float, got float64, lower bool) float64 {
	if lower {
		return got - float
	}
	return float - got
}

// beyond says which bounds of size and time a trial breaks; "" if none.
func (g *Goal) beyond(t *Trial) string {
	var all []string
	if g.MaxSize > 0 && t.Bytes > g.MaxSize {
		all = append(all, fmt.Sprintf("%s bytes (--max-size %s)", humanize.Comma(t.Bytes), humanize.Comma(g.MaxSize)))
	}
	if t.Time != nil {
		if g.MaxSlowdown > 0 && t.Time.Ratio > g.MaxSlowdown {
			all = append(all, fmt.Sprintf("%.2f times the time of IN (--max-slowdown %g)", t.Time.Ratio, g.MaxSlowdown))
		}
		if most := g.MaxLatency.Seconds() * 1000; most > 0 && t.Time.P50 > most {
			all = append(all, fmt.Sprintf("%.3g ms (--max-latency %v)", t.Time.P50, g.MaxLatency))
		}
	}
	return strings.Join(all, ", ")
}

// value is what the objective makes small.
func (g *Goal) value(t *Trial) float64 {
	switch g.Objective {
	case Fastest:
		if t.Time != nil {
			return t.Time.Ratio
		}
		return math.Inf(1)
	case Best:
		return t.loss
	}
	return float64(t.Bytes)
}

// better reports whether a trial is better than another one by the objective: faster only if that is clear.
func (g *Goal) better(t, than *Trial) bool {
	if g.Objective == Fastest && t.Time != nil && than.Time != nil {
		return faster(t, than)
	}
	return g.value(t) < g.value(than)
}

// nearer reports whether a trial that misses the goal is nearer to it than another one: what only its time keeps from it is nearest.
func (g *Goal) nearer(t, than *Trial) bool {
	switch {
	case t.slow != than.slow:
		return t.slow
	case t.slow:
		return t.Time.Ratio < than.Time.Ratio
	}
	return t.loss < than.loss
}

// String says the goal in words.
func (g *Goal) String() string {
	objective := g.Objective
	if objective == "" {
		objective = Smallest
	}
	var limits []string
	add := func(format string, v ...any) { limits = append(limits, fmt.Sprintf(format, v...)) }
	if g.MaxDrop != nil {
		add("a drop of at most %v", *g.MaxDrop)
	}
	if g.MinScore != nil {
		add("a score of %g", *g.MinScore)
	}
	if g.MaxKL != nil {
		add("a KL divergence of at most %g", *g.MaxKL)
	}
	if g.MinSQNR != nil {
		add("an SQNR of at least %g dB", *g.MinSQNR)
	}
	if g.MaxSize > 0 {
		add("at most %s bytes", humanize.Comma(g.MaxSize))
	}
	if g.MaxSlowdown > 0 {
		add("at most %g times the time of IN", g.MaxSlowdown)
	}
	if g.MaxLatency > 0 {
		add("at most %v for a run", g.MaxLatency)
	}
	return fmt.Sprintf("the %s with %s", objective, strings.Join(limits, ", "))
}
