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
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/spec"
)

// key returns a hash of all that the result of a calibration depends on, and one of the data alone.
func (p *Plan) key(ctx context.Context, layers []layer, o layerfit.Options) (all, data string, err error) {
	const version = 6 // increases when calibration finds other codes
	if data, err = p.opts.Calibration.Key(ctx); err != nil {
		return "", "", err
	}
	model, err := p.graph.File.SHA256()
	if err != nil {
		return "", "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, version, data, model, o.Algorithm == spec.Best, o.Algorithm == spec.AWQ, o.Memory)
	if err := HashContents(ctx, p.graph.File, h); err != nil {
		return "", "", err
	}
	for _, l := range layers {
		w := l.Weight
		fmt.Fprintf(h, "%q %d %d %d %d %T %+v %v %#v\n", w.Name, w.Outer, w.K, w.Inner, w.Block, w.Codec, w.Codec, w.PositiveScales, l.Products)
	}
	return hex.EncodeToString(h.Sum(nil)), data, nil
}

// hash is the hash of the data, of the same length before it is known.
func (c *calibrated) hash() string {
	if c == nil {
		return hex.EncodeToString(make([]byte, sha256.Size))
	}
	return c.data
}

// HashContents writes the contents of all initializers to h. The hash of the model file does not
// cover external data.
func HashContents(ctx context.Context, m *modelfile.Model, h io.Writer) (err error) {
	graph.WalkAllGraphs(m.Proto, func(g *onnxpb.GraphProto) {
		for _, t := range g.GetInitializer() {
			contents, failed := m.Payload(t)
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
