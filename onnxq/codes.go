package onnxq

import (
	"context"

	"onnxquant/internal/convert"
	"onnxquant/spec"
)

// Codes are codes of weights that data found for static activations. They are in a file until Close.
type Codes struct{ found *convert.StaticCodes }

// Weights is the number of weights that have such codes, and Biases the number of corrected biases.
func (c *Codes) Weights() int { return c.found.Weights }
func (c *Codes) Biases() int  { return c.found.Biases }

// Close removes the codes: options that have them are of no more use.
func (c *Codes) Close() error {
	if c == nil {
		return nil
	}
	return c.found.Close()
}

// CodesOptions are options of Plan.FindCodes.
type CodesOptions struct {
	Algorithm spec.Algorithm // GPTQ or Best

	// Folder is for files, which stay: FindCodes goes on where it was interrupted with the same Key, which tells all that codes
	// depend on. "": a temporary folder, which Codes.Close removes.
	Folder string
	Key    string

	Progress func(done, total int64) // may be nil
}

// FindCodes finds codes of the weights of a plan with static activations, on the inputs that the weights
// get in the quantized model, so that products are near those of the float model. Biases get what is left of the
// means of products. It returns nil if data can find codes for no weight.
func (p *Plan) FindCodes(ctx context.Context, c Calibration, o CodesOptions) (*Codes, error) {
	found, err := p.plan.StaticCodes(ctx, activationsOf(c), convert.StaticOptions(o))
	if found == nil {
		return nil, err
	}
	return &Codes{found}, err
}

// codes returns the codes of options.
func (o Options) codes() *convert.StaticCodes {
	if o.Codes == nil {
		return nil
	}
	return o.Codes.found
}
