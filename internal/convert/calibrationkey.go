package convert

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"onnxquant/internal/graph"
	"onnxquant/internal/layerfit"
	"onnxquant/internal/onnxpb"
	"onnxquant/spec"
)

// key returns a hash of all that the result of a calibration depends on.
func (p *Plan) key(ctx context.Context, layers []layer, o layerfit.Options) (string, error) {
	const version = 2 // increases when calibration finds other codes
	data, err := p.opts.Calibration.Key(ctx)
	if err != nil {
		return "", err
	}
	model, err := p.graph.File.SHA256()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, version, data, model, o.Algorithm == spec.Best, o.Algorithm == spec.AWQ, o.Memory)
	if err := p.hashContents(ctx, h); err != nil {
		return "", err
	}
	for _, l := range layers {
		w := l.Weight
		fmt.Fprintf(h, "%q %d %d %d %d %T %+v %v %#v\n", w.Name, w.Outer, w.K, w.Inner, w.Block, w.Codec, w.Codec, w.PositiveScales, l.Products)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hashContents writes the contents of all initializers to h. The hash of the model file does not
// cover external data.
func (p *Plan) hashContents(ctx context.Context, h io.Writer) (err error) {
	graph.WalkAllGraphs(p.graph.File.Proto, func(g *onnxpb.GraphProto) {
		for _, t := range g.GetInitializer() {
			contents, failed := p.graph.File.Payload(t)
			if failed == nil && contents != nil { // strings have none
				_, failed = io.Copy(h, io.NewSectionReader(contents, 0, contents.Size()))
			}
			err = cmp.Or(err, failed, context.Cause(ctx))
			if err != nil {
				return
			}
		}
	})
	return err
}
