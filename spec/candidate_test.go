package spec_test

import (
	"testing"

	"onnxquant/spec"
)

func TestParseCandidate(t *testing.T) {
	for _, text := range []string{
		"int4:32", "int8:channel", "uint4:32:zp", "int2:16:zp", "fp8-e4m3", "nvfp4", "mxfp4", "mxfp8", "nf4", "fp4", "q4_0", "q5_1", "q3_k", "q4_k", "iq4_nl",
		"int4:16:int8scale", "int4:32:zp:uint8scale", "int8:channel:float16scale", "int4:float32scale",
	} {
		if c, err := spec.ParseCandidate(text); err != nil || c.String() != text {
			t.Errorf("%s became %s, %v", text, c, err)
		}
	}
	for _, want := range []spec.Candidate{{Format: spec.Float}, {Format: spec.Int8}, {Format: spec.Int4, ZeroPoint: true}, {Format: spec.Int4, Block: spec.PerChannel, ZeroPoint: true}, {Format: spec.Int4, ScaleType: spec.ScaleUint8}} {
		if c, err := spec.ParseCandidate(want.String()); c != want || err != nil {
			t.Errorf("%s became %s, %v", want, c, err)
		}
	}
	for _, text := range []string{"", "int3", "int4:1", "int4:x", "int4:32:z", "nf4:64:zp", "mxfp4:16", "float:2", "int4:32:zp:", "int4:int8scale:32", "int4:32:int4scale", "int4:32:scale", "q4_0:float16scale", "float:uint8scale"} {
		if c, err := spec.ParseCandidate(text); err == nil {
			t.Errorf("%q: %s, no error", text, c)
		}
	}
}
