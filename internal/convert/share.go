package convert

import (
	"context"
	"errors"
	"fmt"

	"onnxquant/internal/layerfit"
	"onnxquant/spec"
)

// FindShare finds the codes of a share of the calibrated layers and puts them into the folder Options.Shared. A
// conversion with this folder takes the codes from there. Temporary files are beside the output, which is not written.
func (p *Plan) FindShare(ctx context.Context, path string, share spec.Share) (none layerfit.ShareFound, err error) {
	if !p.calibrates() {
		return none, errors.New("no weight is calibrated, so there is no share of the layers")
	}
	p, layers, _, err := p.toCalibrate(ctx)
	if err != nil {
		return none, err
	}
	o := p.calibration()
	o.Shared = p.opts.Shared
	if o.Key, _, err = p.key(ctx, layers, o); err != nil {
		return none, err
	}
	unlock, err := p.lockFiles(ctx, path, fmt.Sprintf("-%d-of-%d", share.I, share.N), &o)
	if err != nil {
		return none, err
	}
	defer unlock()
	remove, err := p.enableInterim(&o, layers)
	if err != nil {
		return none, err
	}
	defer remove()
	return layerfit.FindShare(ctx, fitted(layers), p.opts.Calibration, o, share)
}
