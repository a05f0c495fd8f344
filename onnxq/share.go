package onnxq

import (
	"context"
	"fmt"

	"onnxquant/spec"
)

// ShareFound counts the inputs of the layers in a share. Layers with the same input count once.
type ShareFound struct {
	Found  int // whose codes are new
	Before int // whose codes were in the folder
}

// FindShare finds the codes of a share of the layers, and puts them into the folder Options.CalibrationStore. Codes
// that are there are not looked for again. When all shares are found, Convert takes the codes from there, and writes
// the same bytes as without shares. FindShare does not write out; temporary files are beside it. All shares, and
// Convert, must have the same model, data and options, among them Memory.
func (p *Plan) FindShare(ctx context.Context, out string, share spec.Share) (ShareFound, error) {
	plan, err := Output{Plan: p, Path: out}.settled(ctx)
	if err != nil {
		return ShareFound{}, err
	}
	if share.N < 1 || !share.IsValid() {
		return ShareFound{}, fmt.Errorf("there is no share %v", share)
	}
	if p.opts.Shared == "" {
		return ShareFound{}, fmt.Errorf("a share of the layers needs Options.CalibrationStore")
	}
	found, err := plan.FindShare(ctx, out, share)
	return ShareFound(found), err
}

// String says what was found.
func (f ShareFound) String() string {
	return fmt.Sprintf("%d inputs of layers have codes now, %d had them before", f.Found, f.Before)
}
