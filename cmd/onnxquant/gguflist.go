package main

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"onnxquant/formats/gguf"
)

// ggufListing is a file's head as JSON.
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
	Value any    `json:"value"` // numbers that JSON does not have are strings
}

type ggufTensorEntry struct {
	Name   string  `json:"name"`
	Type   string  `json:"type"`
	Shape  []int64 `json:"shape"` // rows last
	Offset int64   `json:"offset"`
	Bytes  int64   `json:"bytes"`
}

// listGGUF prints what a GGUF file holds.
func listGGUF(c *console, path string, asJSON bool) error {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	l := ggufListing{f.Version, f.Alignment, f.Data, f.Size, []ggufKey{}, []ggufTensorEntry{}}
	for _, kv := range f.Metadata {
		l.Metadata = append(l.Metadata, ggufKey{kv.Key, gguf.TypeName(kv.Value), jsonValue(reflect.ValueOf(kv.Value))})
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		l.Tensors = append(l.Tensors, ggufTensorEntry{t.Name, t.Type.String(), t.Shape, t.Offset, t.Bytes()})
	}
	if asJSON {
		return c.json(l)
	}
	rows := [][]string{{"KEY", "TYPE", "VALUE"}}
	for i, kv := range l.Metadata {
		rows = append(rows, []string{name(kv.Key), kv.Type, clip(printable(ggufText(f.Metadata[i].Value)), maxReason)})
	}
	printTable(c.stdout, rows)
	fmt.Fprintln(c.stdout)
	types := map[string]int{}
	rows = [][]string{{"NAME", "SHAPE", "TYPE", "BYTES", "OFFSET"}}
	elements, bytes := int64(0), int64(0)
	for i, t := range l.Tensors {
		rows = append(rows, []string{name(t.Name), shape(t.Shape), t.Type, byteSize(t.Bytes), strconv.FormatInt(t.Offset, 10)})
		types[t.Type]++
		elements += f.Tensors[i].Elements()
		bytes += t.Bytes
	}
	printTable(c.stdout, rows)
	fmt.Fprintln(c.stdout)
	facts := []fact{
		{"version", fmt.Sprintf("%d, alignment %d", l.Version, l.Alignment)},
		{"tensors", strings.Join(counts(types), ", ")},
		{"size", byteSize(l.Size)},
	}
	if elements > 0 {
		facts[2].text += fmt.Sprintf(", %.2f bits per weight", 8*float64(bytes)/float64(elements))
	}
	printFacts(c.stdout, facts)
	return nil
}

// ggufText writes a value of the metadata, of an array the first elements.
func ggufText(value any) string {
	const most = 8
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.String:
		return strconv.Quote(clip(v.String(), maxReason))
	case reflect.Interface:
		return ggufText(v.Elem().Interface())
	case reflect.Slice:
		var parts []string
		for i := range min(v.Len(), most) {
			parts = append(parts, ggufText(v.Index(i).Interface()))
		}
		text := "[" + strings.Join(parts, ", ")
		if v.Len() > most {
			text += fmt.Sprintf(", … %d in all", v.Len())
		}
		return text + "]"
	}
	return fmt.Sprint(value)
}

// jsonValue makes a value of the metadata fit for JSON: an array of bytes stays one,
// and NaN and the infinities become strings.
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
