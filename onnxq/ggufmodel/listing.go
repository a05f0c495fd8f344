package ggufmodel

import (
	"fmt"
	"math"
	"reflect"

	"onnxquant/formats/gguf"
)

// Listing is the header of a GGUF file as JSON.
type Listing struct {
	Version   uint32         `json:"version"`
	Alignment int64          `json:"alignment"`
	Data      int64          `json:"data_offset"`
	Size      int64          `json:"bytes"`
	Metadata  []ListedKey    `json:"metadata"`
	Tensors   []ListedTensor `json:"tensors"`
}

// ListedKey is a key of the metadata.
type ListedKey struct {
	Key   string `json:"key"`
	Type  string `json:"type"`
	Value any    `json:"value"` // NaN and infinities are strings
}

// ListedTensor is a tensor.
type ListedTensor struct {
	Name   string  `json:"name"`
	Type   string  `json:"type"`
	Shape  []int64 `json:"shape"` // the last axis varies fastest
	Offset int64   `json:"offset"`
	Bytes  int64   `json:"bytes"`
}

// NewListing lists what a file has. It reads no contents of tensors.
func NewListing(f *gguf.File) *Listing {
	l := &Listing{f.Version, f.Alignment, f.Data, f.Size, []ListedKey{}, []ListedTensor{}}
	for _, kv := range f.Metadata {
		l.Metadata = append(l.Metadata, ListedKey{kv.Key, gguf.TypeName(kv.Value), jsonValue(reflect.ValueOf(kv.Value))})
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		l.Tensors = append(l.Tensors, ListedTensor{t.Name, t.Type.String(), t.Shape, t.Offset, t.Bytes()})
	}
	return l
}

// jsonValue converts a value of the metadata for JSON: an array of bytes becomes an array of numbers;
// NaN and infinities become strings.
func jsonValue(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Interface:
		return jsonValue(v.Elem())
	case reflect.Slice:
		all := make([]any, v.Len())
		for i := range all {
			all[i] = jsonValue(v.Index(i))
		}
		return all
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Sprint(f)
		}
	}
	return v.Interface()
}
