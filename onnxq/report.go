package onnxq

import (
	"onnxquant/onnxq/spec"
	"time"
)

// Decision is what becomes of a float tensor.
type Decision string

const (
	Quantize Decision = "quantize"
	Keep     Decision = "keep"
)

// TensorPlan says what becomes of one float tensor of the model, and why.
type TensorPlan struct {
	Name      string   `json:"name"`
	DType     string   `json:"dtype"`
	Shape     []int64  `json:"shape"`
	Bytes     int64    `json:"bytes"`
	Consumers []string `json:"consumers"` // as Op:input, e.g. MatMul:1
	Nodes     []string `json:"nodes"`     // their names, or else those of their outputs

	Decision Decision `json:"decision"`
	Reason   string   `json:"reason,omitempty"` // why it stays in float

	Format   spec.Format `json:"format,omitempty"`
	Axis     int         `json:"axis"` // of the codes, along which blocks run; meaningful when quantized
	Block    int         `json:"block,omitempty"`
	Form     string      `json:"form,omitempty"` // the operators that decode it
	Note     string      `json:"note,omitempty"` // why it is not what was asked for
	OutBytes int64       `json:"out_bytes"`      // codes, scales and zero points; Bytes when kept

	BitsPerWeight float64 `json:"bits_per_weight,omitempty"` // OutBytes for each element, when quantized
}

// Plan says what a conversion will do. It is a function of the model's structure
// and the options alone: no weight is read to make it. Weights that turn out to
// hold NaN or infinity, or values too small for any scale, make Convert plan
// again without them.
//
// A plan needs its Model to be open. Its methods change it, and must not run at
// once.
type Plan struct {
	Tensors     []TensorPlan `json:"tensors"` // every float initializer and Constant
	OpsetBefore int64        `json:"opset_before"`
	OpsetAfter  int64        `json:"opset_after"`
	IRBefore    int64        `json:"ir_before"`
	IRAfter     int64        `json:"ir_after"`
	InBytes     int64        `json:"in_bytes"`  // model file and external data
	OutBytes    int64        `json:"out_bytes"` // exact size of what will be written
	External    bool         `json:"external_data"`
	Coverage    float64      `json:"coverage"` // share of the bytes of float tensors that is quantized
	// BitsPerWeight is what an element of the quantized tensors takes, all in all.
	BitsPerWeight float64  `json:"bits_per_weight"`
	Warnings      []string `json:"warnings,omitempty"`

	conv             *conversion
	quantized, total int64 // bytes of float tensors
}

// TensorReport adds to a quantized tensor's plan how well its codes stand for
// the float values.
type TensorReport struct {
	TensorPlan
	MaxError float64 `json:"max_error"` // largest |w - decoded w|
	MSE      float64 `json:"mse"`
	SQNR     float64 `json:"sqnr_db"` // 10·log10(mean w² / MSE); +Inf cannot be JSON: 999 stands for exact
}

// Report tells what a conversion did.
type Report struct {
	Plan     *Plan          `json:"plan"`
	Tensors  []TensorReport `json:"quantized"` // the quantized ones
	Verified bool           `json:"verified"`  // reopened and checked
	Output   string         `json:"output"`
	Data     string         `json:"data,omitempty"` // external data file, if any
	Elapsed  time.Duration  `json:"elapsed_ns"`
}
