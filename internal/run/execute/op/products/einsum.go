package products

import (
	"fmt"
	"slices"
	"strings"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// term is an operand of an Einsum: the letter of each axis. Axes of an ellipsis have digits, the last one 0.
type term string

// newTerm puts digits in the place of the ellipsis.
func newTerm(text string, rank int) (term, error) {
	before, after, found := strings.Cut(text, "...")
	if found {
		digits := ""
		for n := rank - len(before) - len(after); n > 0; n-- {
			digits += string(rune('0' + n - 1))
		}
		text = before + digits + after
	}
	if rank >= 0 && len(text) != rank {
		return "", fmt.Errorf("term %q for %d dimensions", text, rank)
	}
	return term(text), nil
}

// equation reads the terms of the inputs and of the output, and the size of each letter.
func equation(c *op.Call) (in []term, out term, sizes map[rune]int64, err error) {
	left, right, explicit := strings.Cut(strings.ReplaceAll(c.Text("equation", ""), " ", ""), "->")
	texts := strings.Split(left, ",")
	if len(texts) != len(c.In) || slices.Contains(c.In, nil) {
		return nil, "", nil, fmt.Errorf("%d terms for %d inputs", len(texts), len(c.In))
	}
	sizes = map[rune]int64{}
	times, ellipsis := map[rune]int{}, ""
	for i, text := range texts {
		t, err := newTerm(text, len(c.In[i].Dims))
		if err != nil {
			return nil, "", nil, err
		}
		digits := ""
		for k, letter := range t {
			d := c.In[i].Dims[k]
			if was, ok := sizes[letter]; ok && was != d && was != 1 && d != 1 {
				return nil, "", nil, fmt.Errorf("axis %c has sizes %d and %d", letter, was, d)
			}
			sizes[letter] = max(sizes[letter], d)
			times[letter]++
			if letter <= '9' {
				digits += string(letter)
			}
		}
		if len(digits) > len(ellipsis) {
			ellipsis = digits
		}
		in = append(in, t)
	}
	if !explicit { // the ellipsis, then letters that occur once
		right = ellipsis
		for letter := 'A'; letter <= 'z'; letter++ {
			if times[letter] == 1 {
				right += string(letter)
			}
		}
	}
	return in, term(strings.Replace(right, "...", ellipsis, 1)), sizes, nil
}

// runEinsum adds up the products of elements over all axes that the output lacks, in float64.
func runEinsum(c *op.Call) ([]*execute.Tensor, error) {
	in, out, sizes, err := equation(c)
	if err != nil {
		return nil, err
	}
	letters := []rune(out)
	for _, t := range in {
		for _, letter := range t {
			if !slices.Contains(letters, letter) {
				letters = append(letters, letter)
			}
		}
	}
	var dims, all []int64
	for i, letter := range letters {
		size, ok := sizes[letter]
		if !ok {
			return nil, fmt.Errorf("axis %c of the output is in no input", letter)
		}
		if all = append(all, size); i < len(out) {
			dims = append(dims, size)
		}
	}
	steps := [][]int64{make([]int64, len(letters))}
	copy(steps[0], op.Strides(dims))
	var x [][]float64
	for i, t := range in {
		step := make([]int64, len(letters))
		for k, s := range op.Strides(c.In[i].Dims) {
			if c.In[i].Dims[k] != 1 {
				step[slices.Index(letters, rune(t[k]))] += s
			}
		}
		steps, x = append(steps, step), append(x, c.In[i].Float64s())
		if c.In[i].DType != c.In[0].DType {
			return nil, op.ErrTypes
		}
	}
	work := 10.0
	for _, d := range all {
		work *= float64(d)
	}
	if err := c.Spend(work); err != nil {
		return nil, err
	}
	if err := c.Room(c.In[0].DType, dims); err != nil {
		return nil, err
	}
	y := make([]float64, op.Product(dims))
	w := op.NewWalk(all, steps...)
	w.Runs(func(at []int, n int) {
		for i := range n {
			product := 1.0
			for k, numbers := range x {
				product *= numbers[at[k+1]+i*w.Step(k+1)]
			}
			y[at[0]+i*w.Step(0)] += product
		}
	})
	return op.One(op.Numbers(c.In[0].DType, dims, y))
}
