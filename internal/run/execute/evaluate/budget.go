package evaluate

import (
	"fmt"
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// Bounded is the pure Go engine for untrusted models: its limits of work and memory grow with the
// sizes of the model and its inputs.
var Bounded execute.Runner = runner{name: "pure Go", bounded: true}

// ErrBudget is wrapped by errors about models that take more than Bounded allows. It wraps
// execute.ErrUnsupported.
var ErrBudget = fmt.Errorf("%w: too much for a model of this size", execute.ErrUnsupported)

// The limits of Bounded: a start, plus an amount per byte of the model, plus an amount per byte of the
// inputs up to a maximum. A large network does 20 multiply-adds per byte of its weights. A small
// network that enlarges images does 15,000 per byte of the image.
const (
	workStart, workPerByte, workPerInput, mostForInputs           = 4e9, 50, 15_000, 6e9
	memoryStart, memoryPerByte, memoryPerInput, mostMemoryForThem = 96 << 20, 8, 128, 64 << 20
)

// Work is counted in multiply-adds of a matrix product, of which this engine does about 5 billion a
// second. The constants convert other work.
const (
	workOfNode     = 75_000
	workOfElement  = 80 // of an elementwise operator
	workOfMove     = 40 // of an element of an output
	workOfByteRead = 1
)

// maxHeld limits the bytes of all values that the Go engine holds at a time.
const maxHeld = 1 << 30

// budget is the work and memory that a run may still use.
type budget struct {
	work   float64
	memory float64 // for all values at a time
	spent  float64 // work so far
}

// unbounded is the budget of the engine Go: only memory is bounded.
func unbounded() budget { return budget{work: math.Inf(1), memory: maxHeld} }

// budgetFor is the budget of Bounded for a model and its inputs, both in bytes.
func budgetFor(model, inputs float64) budget {
	return budget{
		work:   workStart + workPerByte*model + min(mostForInputs, workPerInput*inputs),
		memory: min(maxHeld, memoryStart+memoryPerByte*model+min(mostMemoryForThem, memoryPerInput*inputs)),
	}
}

// spend takes work from the budget.
func (b *budget) spend(work float64) error {
	b.spent += work
	if b.work -= work; b.work < 0 {
		return fmt.Errorf("%w: it would take too long", ErrBudget)
	}
	return nil
}

// copies estimates how many copies of its output an operator holds while it runs.
const copies = 4

// checkRoom checks that there is room for a tensor before it is made.
func (e *evaluator) checkRoom(typ dtype.DType, dims []int64) error {
	n, err := execute.Bytes(typ, dims)
	if err != nil {
		return err
	}
	need := float64(e.held) + copies*float64(n)
	switch {
	case need <= e.budget.memory:
		return nil
	case math.IsInf(e.budget.work, 1):
		return op.Unsupported("values of more than %d MiB at a time", maxHeld>>20)
	}
	return fmt.Errorf("%w: it would take %.0f MiB of memory, %.0f MiB are allowed", ErrBudget, need/(1<<20), e.budget.memory/(1<<20))
}
