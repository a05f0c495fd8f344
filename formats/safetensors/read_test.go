package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/formats/safetensors"
)

func file(header, data string) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), data...)
}

func read(b []byte) (*safetensors.File, error) {
	return safetensors.Read(bytes.NewReader(b), int64(len(b)))
}

func TestRead(t *testing.T) {
	f, err := read(file(`{"b": {"dtype":"F16","shape":[2],"data_offsets":[4,8]}, "__metadata__": {"format":"pt"}, "a": {"dtype":"F32","shape":[],"data_offsets":[0,4]},
		"none": {"dtype":"BF16","shape":[0,3],"data_offsets":[8,8]}, "odd": {"dtype":"F6_E2M3","shape":[9],"data_offsets":[8,9]}}   `, "aaaabbbbo"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Metadata["format"] != "pt" || len(f.Tensors) != 4 || f.Tensors[0].Name != "a" || f.Tensor("c") != nil {
		t.Errorf("%+v", f)
	}
	b := f.Tensor("b")
	if content, err := io.ReadAll(f.Content(b)); err != nil || string(content) != "bbbb" || b.Type.DType() != dtype.Float16 {
		t.Errorf("%q, %v, %v", content, err, b)
	}
	if f.Tensor("odd").Type.DType() != 0 {
		t.Error("an unknown type is known")
	}
}

func TestRefuses(t *testing.T) {
	one := func(s string) []byte { return file(`{"a": `+s+`}`, "aaaa") }
	for want, b := range map[string][]byte{
		"no length of a header":          []byte("short"),
		"a header of 72057594037927936":  {0, 0, 0, 0, 0, 0, 0, 1, '{', '}'},
		"a header of 9 bytes":            {9, 0, 0, 0, 0, 0, 0, 0, '{', '}'},
		"no JSON object":                 file(`[]`, ""),
		"header: ":                       file(`{"a": {"dtype":"F32","shape":[],"data_offsets":[0,4]}`, "aaaa"),
		"want dtype, shape":              one(`{"dtype":"F32","shape":[1]}`),
		"offsets [4 0]":                  one(`{"dtype":"F32","shape":[1],"data_offsets":[4,0]}`),
		"offsets [-4 0]":                 one(`{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}`),
		"shape [-1]":                     one(`{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}`),
		"is too large":                   one(`{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}`),
		"4 bytes for shape [2] of F32":   one(`{"dtype":"F32","shape":[2],"data_offsets":[0,4]}`),
		"the tensors have 2 bytes":       one(`{"dtype":"F16","shape":[1],"data_offsets":[0,2]}`),
		"begins at byte 2 of the data":   one(`{"dtype":"F16","shape":[1],"data_offsets":[2,4]}`),
		"stands twice":                   file(`{"a": {"dtype":"F32","shape":[],"data_offsets":[0,4]}, "a": {"dtype":"F32","shape":[],"data_offsets":[4,8]}}`, "aaaabbbb"),
		`tensor "b" begins at byte 0 of`: file(`{"a": {"dtype":"F32","shape":[],"data_offsets":[0,4]}, "b": {"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, "aaaa"),
	} {
		if _, err := read(b); !errors.Is(err, safetensors.ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// No file makes Read panic, or allocate by a number in the file.
func FuzzRead(f *testing.F) {
	f.Add(file(`{"a": {"dtype":"F32","shape":[1],"data_offsets":[0,4]}, "__metadata__": {"x":"y"}}`, "aaaa"))
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 127, '{'})
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := read(b)
		if err != nil {
			return
		}
		for i := range x.Tensors {
			if _, err := io.Copy(io.Discard, x.Content(&x.Tensors[i])); err != nil {
				t.Fatal(err)
			}
		}
	})
}
