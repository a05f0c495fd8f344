package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
)

// Bounds of what is read of a profile.
const (
	mostBytes     = 2 << 30
	longestEvent  = 1 << 20
	mostOperators = 1000 // names
	mostNesting   = 1 << 20
)

// event is an event of a profile. Times are in µs.
type event struct {
	Cat  string
	Name string
	Ts   int64
	Dur  int64
	Tid  int64
	Args struct {
		Op string `json:"op_name"`
	}
}

// sums are times by operator, and the nodes that ran.
type sums struct {
	micros map[string]int64
	nodes  map[string]int
	run    int64 // the whole run
}

func newSums() *sums { return &sums{micros: map[string]int64{}, nodes: map[string]int{}} }

func (s *sums) add(op string, micros int64) {
	if _, known := s.micros[op]; !known && len(s.micros) >= mostOperators {
		op = "others"
	}
	s.micros[op] += micros
	s.nodes[op]++
}

// span is an event that has ended.
type span struct{ start, micros, thread int64 }

// readProfile reads a profile that ONNX Runtime has written: a list of events, one on each line. The fastest
// quarter of the last runs counts; the runs before warmed up. A line that cannot be read counts as time
// between operators.
func readProfile(r io.Reader, runs int) (*Profile, error) {
	in := bufio.NewReaderSize(io.LimitReader(r, mostBytes), longestEvent)
	var last []*sums // the last runs
	now, ended := newSums(), []span(nil)
	for {
		line, err := nextLine(in)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		var e event
		if json.Unmarshal(bytes.TrimRight(line, ",\r\n "), &e) != nil || e.Dur < 0 {
			continue
		}
		switch {
		case e.Name == "model_run" && e.Cat == "Session":
			now.run = e.Dur
			if last = append(last, now); len(last) > runs {
				last = last[1:]
			}
			now, ended = newSums(), ended[:0]
		case e.Cat == "Node" && strings.HasSuffix(e.Name, "_kernel_time") && e.Args.Op != "":
			inner := int64(0) // of the nodes in its subgraphs, which have ended
			for n := len(ended); n > 0 && ended[n-1].start >= e.Ts && ended[n-1].thread == e.Tid; n-- {
				inner += ended[n-1].micros
				ended = ended[:n-1]
			}
			now.add(e.Args.Op, max(e.Dur-inner, 0))
			if len(ended) < mostNesting {
				ended = append(ended, span{e.Ts, e.Dur, e.Tid})
			}
		}
	}
	if len(last) == 0 {
		return nil, errors.New("the profile of ONNX Runtime has no complete run")
	}
	slices.SortStableFunc(last, func(a, b *sums) int { return cmp.Compare(a.run, b.run) })
	return summary(last[:(len(last)+3)/4]), nil
}

// nextLine returns the next line; an empty one in place of a line that is too long.
func nextLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		line = nil
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil
	}
	return line, err
}

// summary averages runs.
func summary(runs []*sums) *Profile {
	all := newSums()
	covered := int64(0)
	for _, run := range runs {
		all.run += run.run
		for op, micros := range run.micros {
			all.micros[op] += micros
			all.nodes[op] += run.nodes[op]
			covered += micros
		}
	}
	n := float64(len(runs))
	average := func(micros int64) float64 { return float64(micros) / 1000 / n }
	p := &Profile{Runs: len(runs), Run: average(all.run), Between: average(max(all.run-covered, 0)), Operators: []Operator{}, Dequantize: Operator{Name: dequantize}}
	for _, name := range slices.Sorted(maps.Keys(all.micros)) {
		op := Operator{name, float64(all.nodes[name]) / n, average(all.micros[name]), ratio(float64(all.micros[name]), float64(all.run))}
		if name == dequantize {
			p.Dequantize = op
		} else {
			p.Operators = append(p.Operators, op)
		}
	}
	slices.SortStableFunc(p.Operators, func(a, b Operator) int { return cmp.Compare(b.Time, a.Time) })
	return p
}

const dequantize = "DequantizeLinear"
