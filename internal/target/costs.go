package target

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Nibbles describes a product that ONNX Runtime computes by MatMulNBits.
type Nibbles struct {
	Bits, Block, Level int
	Zeros              bool  // there are zero points
	K, N               int64 // the matrix has K rows and N columns
	Rows               int64 // of the other factor; 0: unknown
}

// costs is the table of measured costs.
type costs struct {
	rows     []int64 // for which products were measured
	products map[Nibbles][]int64
	depths   []int64            // measured K, ascending
	forms    map[string]float64 // "operator shape" behind a DequantizeLinear, times float
	folded   map[string]float64 // the same behind Cast and Mul
}

//go:embed costs_ort.txt
var ortCosts string

// inORTCosts has what forms cost in ONNX Runtime: see test/bench/costs.py.
var inORTCosts = sync.OnceValue(func() costs {
	c, _ := parseCosts(ortCosts) // TestCosts reads it without an error
	return c
})

// never is a number of columns that no matrix has.
const never = 1 << 62

// clearDepth is the K from which on MatMulNBits is clearly faster than floats with several rows, which it rounds
// to 8 bits first: 0.7 to 0.95 times. With half of it, it takes 0.92 to 1.18 times, which a table of one series
// of measurements does not tell apart.
const clearDepth = 256

// Fast reports whether ONNX Runtime's MatMulNBits takes no more CPU time than a product with floats. If the
// number of rows is not known, that must be so for each measured one. A matrix counts as the next smaller
// measured one.
func (p Nibbles) Fast() bool {
	t := inORTCosts()
	at, exact := slices.BinarySearch(t.depths, p.K)
	if !exact {
		at--
	}
	if at < 0 || p.K < clearDepth && p.Rows != 1 {
		return false
	}
	least := t.products[Nibbles{Bits: p.Bits, Block: p.Block, Level: p.Level, Zeros: p.Zeros, K: t.depths[at]}]
	if least == nil { // measured with other blocks, or without zero points
		return false
	}
	if p.Rows > 0 {
		i, exact := slices.BinarySearch(t.rows, p.Rows)
		from := i - 1
		if exact || i == len(t.rows) {
			i = min(i, len(t.rows)-1)
			from = i
		}
		least = least[max(from, 0) : i+1]
	}
	return p.N >= slices.Max(least)
}

// Decoding returns how many times as long as with a float weight an operator of the standard took behind a
// DequantizeLinear, for the measured shapes; ok is false if it was not measured. MatMul and Gemm are one.
func Decoding(operator string) (least, most float64, ok bool) {
	product := func(op string) bool { return op == "MatMul" || op == "Gemm" }
	for name, ratio := range inORTCosts().forms {
		op, _, _ := strings.Cut(name, " ")
		op, _, _ = strings.Cut(op, ",")
		if op != operator && !(product(op) && product(operator)) {
			continue
		}
		if !ok || ratio < least {
			least = ratio
		}
		most, ok = max(most, ratio), true
	}
	return least, most, ok
}

// parseCosts reads the table. A line of MatMulNBits has its bits, block, level, "zeros" or "-", K, and the
// least N for each number of rows. Other lines have an operator, its shape, and two ratios.
func parseCosts(table string) (costs, error) {
	c := costs{rows: []int64{1, 4, 16, 128}, products: map[Nibbles][]int64{}, forms: map[string]float64{}, folded: map[string]float64{}}
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		var err error
		switch {
		case len(fields) == 0 || fields[0] == "#":
		case fields[0] == "MatMulNBits":
			err = c.product(fields[1:])
		case len(fields) == 4:
			name := fields[0] + " " + fields[1]
			if c.forms[name], err = strconv.ParseFloat(fields[2], 64); err == nil {
				c.folded[name], err = strconv.ParseFloat(fields[3], 64)
			}
		default:
			err = fmt.Errorf("it has %d words", len(fields))
		}
		if err != nil {
			return c, fmt.Errorf("costs: %q: %w", strings.TrimSpace(line), err)
		}
	}
	return c, nil
}

// product reads the words behind MatMulNBits.
func (c *costs) product(words []string) error {
	if len(words) != 5+len(c.rows) {
		return fmt.Errorf("it has %d words", len(words))
	}
	numbers := make([]int64, len(words))
	for i, w := range words {
		if w == "-" || w == "zeros" {
			numbers[i] = never
			continue
		}
		var err error
		if numbers[i], err = strconv.ParseInt(w, 10, 64); err != nil {
			return err
		}
	}
	key := Nibbles{Bits: int(numbers[0]), Block: int(numbers[1]), Level: int(numbers[2]), Zeros: words[3] == "zeros", K: numbers[4]}
	c.products[key] = numbers[5:]
	if i, found := slices.BinarySearch(c.depths, key.K); !found {
		c.depths = slices.Insert(c.depths, i, key.K)
	}
	return nil
}
