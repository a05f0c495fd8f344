package onnxq

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/int4"
	"onnxquant/internal/golden"
)

// TestGoldenEndToEnd converts the reference's models and compares codes and
// scales with those that the reference wrote.
func TestGoldenEndToEnd(t *testing.T) {
	golden.Run(t, "e2e", map[string]golden.Func{
		"int4_quantize_rtn_dq": func(c *golden.Case) (golden.Arrays, error) { return convertCase(t, c) },
	})
}

func convertCase(t *testing.T, c *golden.Case) (golden.Arrays, error) {
	var model string
	opts := Options{Bits: 4}
	if err := c.Param("model", &model); err != nil {
		return nil, err
	}
	if err := c.Param("block_size", &opts.Block); err != nil {
		return nil, err
	}
	if strings.Contains(model, "transb") {
		return nil, golden.ErrSkip // the reference shares scales along N there, the axis that is not summed over
	}
	var eight []string // weights of 8 bits, which the reference always scales per channel
	for name, a := range c.Outputs {
		if w, ok := strings.CutSuffix(name, "_i4:values"); ok && len(a.Data) == len(c.Outputs[w+"_i4:raw"].Data) {
			eight = append(eight, fmt.Sprintf(`%q: {"bits": 8, "block": -1}`, w))
		}
	}
	var err error
	if opts.Precision, err = ParsePrecision([]byte("{" + strings.Join(eight, ",") + "}")); err != nil {
		return nil, err
	}
	out := filepath.Join(t.TempDir(), "out.onnx")
	p, err := opened(t, filepath.Join(c.Dir, model)).Plan(opts)
	if err != nil {
		return nil, err
	}
	if _, err := p.Convert(context.Background(), out); err != nil {
		return nil, err
	}
	got := golden.Arrays{}
	m := opened(t, out)
	for _, w := range p.conv.weights {
		name := w.name + "_i4"
		_, packed := raw(t, m, w.codes.GetName())
		values := make([]byte, w.k*w.outer*w.inner)
		int4.Unpack(values, packed, w.bits(), true)
		_, scale := raw(t, m, w.scale.GetName())
		for suffix, data := range map[string][]byte{":values": values, ":raw": packed, ":scale": scale} {
			a := c.Outputs[name+suffix]
			got[name+suffix] = golden.Array{DType: a.DType, Shape: a.Shape, Data: data}
		}
	}
	for name, a := range c.Outputs {
		if strings.HasPrefix(name, "ort:") {
			got[name] = a // a run of the model, for other tests
		}
	}
	return got, nil
}
