package operands

import "fmt"

// Recurrence is the product of the recurrent weight of an LSTM, a GRU or an RNN with its hidden
// states: the initial states, zeros by default, then all outputs except the last. Each direction is a
// part.
type Recurrence struct {
	Directions int64
	Reverse    bool // the only direction
	BatchFirst bool // attribute layout
}

// Parts is the number of directions.
func (r Recurrence) Parts() int { return int(r.Directions) }

// Rows implements Operation. The states are [steps, directions, batch, hidden], or
// [batch, steps, directions, hidden].
func (r Recurrence) Rows(states, initial Value, k int) (Rows, error) {
	d := states.Dims
	if len(d) != 4 {
		return nil, fmt.Errorf("it has %d axes, not 4", len(d))
	}
	h := &hidden{Recurrence: r, states: states.Data, initial: initial.Data, steps: d[0], batch: d[2], size: d[3], row: make([]float32, k)}
	directions := d[1]
	if r.BatchFirst {
		h.batch, h.steps, directions = d[0], d[1], d[2]
	}
	if directions != r.Directions || directions*h.size != int64(k) {
		return nil, fmt.Errorf("its %d directions of %d elements do not fit a weight with %d rows", directions, h.size, k)
	}
	if n := len(initial.Data); n > 0 && n != int(h.batch)*k {
		return nil, fmt.Errorf("the initial states have %d elements, not %d", n, int(h.batch)*k)
	}
	return h, nil
}

// hidden are the rows of a Recurrence.
type hidden struct {
	Recurrence
	states, initial    []float32
	steps, batch, size int64
	row                []float32
}

func (h *hidden) Len() int { return int(h.steps * h.batch) }

func (h *hidden) Input(i int) []float32 {
	step, of := int64(i)/h.batch, int64(i)%h.batch
	for d := range h.Directions {
		before := step - 1
		if h.Reverse || d == 1 {
			before = step + 1
		}
		to := h.row[d*h.size:][:h.size]
		switch from := h.at(h.states, before, h.steps, d, of); {
		case before >= 0 && before < h.steps:
			copy(to, from)
		case len(h.initial) > 0:
			copy(to, h.at(h.initial, 0, 1, d, of))
		default:
			clear(to)
		}
	}
	return h.row
}

// at returns the states of a step, direction and sample, or nothing beyond the steps.
func (h *hidden) at(states []float32, step, steps, direction, of int64) []float32 {
	if step < 0 || step >= steps {
		return nil
	}
	row := (step*h.Directions+direction)*h.batch + of
	if h.BatchFirst {
		row = (of*steps+step)*h.Directions + direction
	}
	return states[row*h.size:][:h.size]
}

// Output is not called: the product with a recurrent weight is not visible in the model.
func (h *hidden) Output(int, Value, []float32) []float32 { return nil }
