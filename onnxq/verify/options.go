package verify

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"onnxquant/internal/msg"
)

// Engine is a runtime for the models.
type Engine string

const (
	Auto   Engine = "auto"    // Go, else ORT; no failure if neither can run the models
	Go     Engine = "go"      // pure Go
	ORT    Engine = "ort"     // ONNX Runtime, through the program onnxquant-ort
	OnnxGo Engine = "onnx-go" // the arithmetic of onnx-go, in builds with the tag onnxgo
	None   Engine = "none"    // do not run the models
)

// Engines lists the values of Options.Engine.
var Engines = []Engine{Auto, Go, ORT, OnnxGo, None}

// Options are the options of Models. The zero value has the defaults.
type Options struct {
	Engine     Engine // "": Auto
	ORTLibrary string // path of ONNX Runtime's shared library; "": search the usual places

	// Inputs are files and folders with inputs: .pb (a TensorProto), .npy, .npz or .jsonl. Arrays with
	// the shapes of the model's inputs are one sample. Otherwise the data are divided into samples as
	// in package onnxq/calibrate, and the first MostSamples are used. Without files, inputs are
	// random: normally distributed floats, or valid indices of a table.
	Inputs []string
	Seed   uint64           // of random inputs
	Dims   map[string]int64 // sizes of symbolic dimensions
	Logits []string         // outputs that are logits, in addition to outputs with logit in their names

	MinSQNR       *float64 // lower limit of the SQNR of weights and outputs, in dB; nil: LeastSQNR, LeastFineSQNR, LeastOutputSQNR
	MinOutputSQNR *float64 // lower limit of the SQNR of outputs, in dB; nil: MinSQNR
	MinCosine     *float64 // lower limit of the cosine of outputs; nil: LeastCosine
	MaxError      *float64 // upper limit of the error of elements of weights and outputs; nil: none

	Detail bool // describe each quantized weight in detail: compare.Detail

	Trace bool // compare values inside of the models

	// Timeout bounds the time in which an engine runs both models. 0: none for a given Engine; for Auto,
	// LeastPatience and a minute more for every GiB of the two models.
	Timeout time.Duration

	// Progress, if set, is called with the name of the next stage, and then with its progress. total
	// is 0 if it is unknown.
	Progress func(stage string, done, total int64)

	// RequireOutputs makes it a failure if the outputs were not compared. nil: if an engine,
	// inputs, dimensions or a limit that applies to outputs are given, unless Engine is None.
	RequireOutputs *bool
}

// LeastPatience is the time that Auto gives an engine for small models. A model can have a loop without end.
const LeastPatience = 2 * time.Minute

// patience is the time for an engine to run models of size bytes; 0: no limit.
func (o *Options) patience(size int64) time.Duration {
	if o.Timeout > 0 || o.Engine != Auto && o.Engine != "" {
		return o.Timeout
	}
	return LeastPatience + time.Duration(float64(size)/(1<<30)*float64(time.Minute))
}

// ErrOptions is wrapped by errors about options that contradict each other.
var ErrOptions = errors.New("contradictory options")

// outputsRequired reports whether it is a failure if the outputs are not compared.
func (o *Options) outputsRequired() (bool, error) {
	given := len(o.Inputs)+len(o.Dims) > 0 || o.MinOutputSQNR != nil || o.MinCosine != nil
	switch {
	case o.Engine == None && o.RequireOutputs != nil && *o.RequireOutputs:
		return false, fmt.Errorf("%w: required outputs need an engine", ErrOptions)
	case o.Engine == None && given:
		return false, fmt.Errorf("%w: inputs, dimensions and limits of outputs need an engine", ErrOptions)
	case o.RequireOutputs != nil:
		return *o.RequireOutputs, nil
	case o.Engine == None:
		return false, nil
	}
	return given || o.Engine != Auto && o.Engine != "" || o.MinSQNR != nil || o.MaxError != nil, nil
}

// checkLogits refuses names of Logits that no output has.
func (o *Options) checkLogits(outputs []string) error {
	for _, name := range o.Logits {
		if !slices.Contains(outputs, name) {
			return fmt.Errorf("no output is called %s to be logits; outputs: %s", msg.Quote(name), msg.Names(outputs))
		}
	}
	return nil
}
