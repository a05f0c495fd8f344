package main

import (
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"

	"onnxquant/formats/gguf"
)

// ggufListing is the header of a GGUF file as JSON.
type ggufListing struct {
	Version   uint32            `json:"version"`
	Alignment int64             `json:"alignment"`
	Data      int64             `json:"data_offset"`
	Size      int64             `json:"bytes"`
	Metadata  []ggufKey         `json:"metadata"`
	Tensors   []ggufTensorEntry `json:"tensors"`
}

type ggufKey struct {
	Key   string `json:"key"`
	Type  string `json:"type"`
	Value any    `json:"value"` // NaN and infinities are strings
}

type ggufTensorEntry struct {
	Name   string  `json:"name"`
	Type   string  `json:"type"`
	Shape  []int64 `json:"shape"` // the last axis varies fastest
	Offset int64   `json:"offset"`
	Bytes  int64   `json:"bytes"`
}

// listGGUF prints the contents of a GGUF file.
func listGGUF(c *console, path string, asJSON bool) error {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if asJSON {
		return c.json(newGGUFListing(f))
	}
	printGGUFMetadata(c.stdout, f)
	printGGUFContents(c.stdout, f)
	return nil
}

func newGGUFListing(f *gguf.File) ggufListing {
	l := ggufListing{f.Version, f.Alignment, f.Data, f.Size, []ggufKey{}, []ggufTensorEntry{}}
	for _, kv := range f.Metadata {
		l.Metadata = append(l.Metadata, ggufKey{kv.Key, gguf.TypeName(kv.Value), jsonValue(reflect.ValueOf(kv.Value))})
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		l.Tensors = append(l.Tensors, ggufTensorEntry{t.Name, t.Type.String(), t.Shape, t.Offset, t.Bytes()})
	}
	return l
}

func printGGUFMetadata(w io.Writer, f *gguf.File) {
	rows := [][]string{{"KEY", "TYPE", "VALUE"}}
	for _, kv := range f.Metadata {
		rows = append(rows, []string{name(kv.Key), gguf.TypeName(kv.Value), clip(printable(ggufText(kv.Value)), maxText)})
	}
	printTable(w, rows)
	fmt.Fprintln(w)
}

// printGGUFContents prints a table of the tensors, and a summary.
func printGGUFContents(w io.Writer, f *gguf.File) {
	types := map[string]int{}
	rows := [][]string{{"NAME", "SHAPE", "TYPE", "BYTES", "OFFSET"}}
	elements, bytes := int64(0), int64(0)
	for i := range f.Tensors {
		t := &f.Tensors[i]
		rows = append(rows, []string{name(t.Name), shape(t.Shape), t.Type.String(), byteSize(t.Bytes()), strconv.FormatInt(t.Offset, 10)})
		types[t.Type.String()]++
		elements += t.Elements()
		bytes += t.Bytes()
	}
	printTable(w, rows)
	fmt.Fprintln(w)
	size := byteSize(f.Size)
	if elements > 0 {
		size += fmt.Sprintf(", %.2f bits per weight", 8*float64(bytes)/float64(elements))
	}
	printFacts(w, []fact{
		{"version", fmt.Sprintf("%d, alignment %d", f.Version, f.Alignment)},
		{"tensors", strings.Join(counts(types), ", ")},
		{"size", size},
	})
}

// ggufText formats a value of the metadata; of an array the first eight elements.
func ggufText(value any) string {
	const most = 8
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.String:
		return strconv.Quote(clip(v.String(), maxText))
	case reflect.Interface:
		return ggufText(v.Elem().Interface())
	case reflect.Slice:
		var parts []string
		for i := range min(v.Len(), most) {
			parts = append(parts, ggufText(v.Index(i).Interface()))
		}
		text := "[" + strings.Join(parts, ", ")
		if v.Len() > most {
			text += fmt.Sprintf(", … %d elements", v.Len())
		}
		return text + "]"
	}
	return fmt.Sprint(value)
}

// jsonValue converts a value of the metadata for JSON: an array of bytes becomes an array
// of numbers, NaN and infinities become strings.
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
