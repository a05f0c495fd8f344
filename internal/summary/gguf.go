package summary

import (
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"onnxquant/formats/gguf"
	"onnxquant/internal/cli"
)

// GGUF prints the metadata and the tensors of a GGUF file.
func GGUF(w io.Writer, f *gguf.File) {
	printGGUFMetadata(w, f)
	printGGUFContents(w, f)
}

func printGGUFMetadata(w io.Writer, f *gguf.File) {
	rows := [][]string{{"KEY", "TYPE", "VALUE"}}
	for _, kv := range f.Metadata {
		rows = append(rows, []string{cli.Name(kv.Key), gguf.TypeName(kv.Value), cli.Clip(cli.Printable(ggufText(kv.Value)), cli.MaxText)})
	}
	cli.PrintTable(w, rows)
	fmt.Fprintln(w)
}

// printGGUFContents prints a table of the tensors, and a summary.
func printGGUFContents(w io.Writer, f *gguf.File) {
	types := map[string]int{}
	rows := [][]string{{"NAME", "SHAPE", "TYPE", "BYTES", "OFFSET"}}
	elements, bytes := int64(0), int64(0)
	for i := range f.Tensors {
		t := &f.Tensors[i]
		rows = append(rows, []string{cli.Name(t.Name), cli.Shape(t.Shape), t.Type.String(), cli.ByteSize(t.Bytes()), strconv.FormatInt(t.Offset, 10)})
		types[t.Type.String()]++
		elements += t.Elements()
		bytes += t.Bytes()
	}
	cli.PrintTable(w, rows)
	fmt.Fprintln(w)
	size := cli.ByteSize(f.Size)
	if elements > 0 {
		size += fmt.Sprintf(", %.2f bits per weight", 8*float64(bytes)/float64(elements))
	}
	cli.PrintFacts(w, []cli.Fact{
		{Label: "version", Text: fmt.Sprintf("%d, alignment %d", f.Version, f.Alignment)},
		{Label: "tensors", Text: strings.Join(cli.Counts(types), ", ")},
		{Label: "size", Text: size},
	})
}

// ggufText formats a value of the metadata; of an array the first eight elements.
func ggufText(value any) string {
	const most = 8
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.String:
		return strconv.Quote(cli.Clip(v.String(), cli.MaxText))
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
