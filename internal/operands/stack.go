package operands

import (
	"context"
	"fmt"
)

// Stack is a product of matrices [N, Width, columns] that lie in one weight, such as those of experts, with as many
// matrices of rows, or with one for all. Each is a part. Rows of zeros are left out: they fill up what a router has
// given to an expert.
type Stack struct {
	N, Width int
}

// Parts is the number of matrices.
func (s Stack) Parts() int { return s.N }

// Part implements Routed.
func (s Stack) Part() string { return "matrix" }

// Kept is 0: no other weight is needed.
func (s Stack) Kept() int64 { return 0 }

// All implements Routed.
func (s Stack) All(input, _ Value) float64 {
	rows := float64(input.Len()) / float64(s.Width)
	if s.shared(input) {
		rows *= float64(s.N)
	}
	return rows
}

// shared reports whether all matrices multiply the same rows.
func (s Stack) shared(input Value) bool {
	d := input.Dims
	return len(d) < 3 || d[len(d)-3] == 1
}

// Begin implements Routed.
func (s Stack) Begin() Routes { return &stacked{Stack: s} }

// stacked are the rows of a Stack.
type stacked struct {
	Stack
	input  Value
	height int // rows of a matrix of the input
	rows   []float32
	at     []int
}

func (s *stacked) Take(input, _ Value) error {
	d := input.Dims
	if len(d) == 0 || d[len(d)-1] != int64(s.Width) || !s.shared(input) && d[len(d)-3] != int64(s.N) {
		return fmt.Errorf("its dims %v do not fit %d matrices with %d rows", d, s.N, s.Width)
	}
	if err := input.whole(); err != nil {
		return err
	}
	s.input, s.height = input, 1
	if len(d) > 1 {
		s.height = int(d[len(d)-2])
	}
	return nil
}

func (s *stacked) Of(_ context.Context, _, part int) (rows []float32, at []int, err error) {
	first, step := part*s.height, s.N*s.height
	if s.shared(s.input) {
		first, step = 0, s.height
	}
	s.rows, s.at = s.rows[:0], s.at[:0]
	for all := len(s.input.Data) / s.Width; first < all; first += step {
		for r := range s.height {
			row := s.input.Data[(first+r)*s.Width:][:s.Width]
			if !zero(row) {
				s.rows, s.at = append(s.rows, row...), append(s.at, first+r)
			}
		}
	}
	return s.rows, s.at, nil
}

func zero(x []float32) bool {
	for _, v := range x {
		if v != 0 {
			return false
		}
	}
	return true
}
