// Package written identifies the content of a model, so that a later comparison finds out whether a
// model is as a conversion wrote it. The content of a tensor has a CRC-32, which finds any change of
// up to 32 bits in a row, and misses one of 2³² others. SHA-256 covers all of these, and the structure.
//
// [Of] gets the structure of a model and the sums of its contents. [Sum] adds up pieces of a content in
// any order, as they are written; [Read] reads the contents of a model. [Reserve] makes room for a
// record in the metadata of a model that will be written, [Put] fills it, and [In] reads it from a
// model. Hashes do not depend on how a file is laid out: external data, typed fields, names of nodes,
// documentation, value infos and other metadata are left out.
package written

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/work"
	"onnxquant/spec"
)

// Key is the key of the record in metadata_props.
const Key = "onnxquant.written"

// digits is the number of hexadecimal digits of a CRC-32.
const digits = 8

// A list of tensors may have fewBytes and a hundredth of the contents.
const fewBytes = 8 << 10

// Sums returns the CRC-32 of the content of a tensor, the i-th of modelfile.Tensors; ok is false if the
// content is in the structure. It is called once for each, in order.
type Sums func(i int, t *onnxpb.TensorProto) (sum uint32, ok bool)

// named is a tensor with its name in the record; "" if it has none of its own.
type named struct {
	*onnxpb.TensorProto
	name string
}

// tensors lists the tensors of a model, with names if these are wanted.
func tensors(m *onnxpb.ModelProto, names bool) (list []named) {
	if !names {
		for _, t := range modelfile.Tensors(m) {
			list = append(list, named{t, ""})
		}
		return list
	}
	first := map[string]int{}
	for where, t := range modelfile.Tensors(m) {
		name := where.Name()
		if i, twice := first[name]; twice {
			list[i].name, name = "", ""
		} else {
			first[name] = len(list)
		}
		list = append(list, named{t, name})
	}
	return list
}

// Of identifies a model. list: tensors one by one, too.
func Of(m *onnxpb.ModelProto, sums Sums, list bool) *spec.Written {
	w := &spec.Written{}
	if list {
		w.Tensors = map[string]string{}
	}
	h := sha256.New()
	for i, t := range tensors(m, list) {
		sum, ok := sums(i, t.TensorProto)
		if !ok {
			sum = crc32.ChecksumIEEE(inStructure(t.TensorProto))
		}
		fmt.Fprintf(h, "%08x\n", sum)
		if t.name != "" {
			w.Tensors[t.name] = fmt.Sprintf("%08x", sum)
		}
	}
	w.Contents = hex.EncodeToString(h.Sum(nil))
	w.Graph, w.Operators = structure(m)
	return w
}

// Read reads the contents of a model with several workers.
func Read(ctx context.Context, m *modelfile.Model, workers int) (Sums, error) {
	all := tensors(m.Proto, false)
	sums := make([]uint32, len(all))
	err := work.Each(ctx, workers, len(all), func(ctx context.Context, buffer *[]byte, i int) error {
		p, err := m.Payload(all[i].TensorProto)
		if err != nil {
			return err
		}
		if p == nil { // strings
			sums[i] = crc32.ChecksumIEEE(inStructure(all[i].TensorProto))
			return nil
		}
		for off := int64(0); off < p.Size(); off += stretch {
			if err := work.Stopped(ctx); err != nil {
				return err
			}
			b := slices.Grow((*buffer)[:0], stretch)[:min(stretch, p.Size()-off)]
			*buffer = b
			if n, err := p.ReadAt(b, off); n < len(b) {
				return err
			}
			sums[i] = crc32.Update(sums[i], crc32.IEEETable, b)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return func(i int, _ *onnxpb.TensorProto) (uint32, bool) { return sums[i], true }, nil
}

// stretch is the number of bytes that are read at once.
const stretch = 256 << 10

// inStructure returns the content of a tensor that is in the structure, as little-endian elements.
func inStructure(t *onnxpb.TensorProto) []byte {
	switch raw := t.GetRawData(); {
	case raw != nil:
		return raw
	case len(t.GetStringData()) > 0:
		b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(&onnxpb.TensorProto{StringData: t.StringData})
		return b
	}
	var b []byte
	put := func(v uint64, bytes int64) {
		for range bytes {
			b, v = append(b, byte(v)), v>>8
		}
	}
	wide := max(dtype.DType(t.GetDataType()).Bits()/8, 1)
	for _, v := range t.GetInt32Data() {
		put(uint64(v), wide)
	}
	for _, v := range t.GetInt64Data() {
		put(uint64(v), wide)
	}
	for _, v := range t.GetUint64Data() {
		put(v, wide)
	}
	for _, v := range t.GetFloatData() {
		put(uint64(floatBits(v)), 4)
	}
	for _, v := range t.GetDoubleData() {
		put(doubleBits(v), 8)
	}
	return b
}

// Reserve adds an empty record to the metadata of a model, which may be shared, and returns by how many
// bytes the model grows. contents is the size of the contents. list: tensors one by one, if they are few.
func Reserve(m *onnxpb.ModelProto, contents int64, list bool) int64 {
	before := bytesOf(m)
	Remove(m)
	none := hex.EncodeToString(make([]byte, sha256.Size))
	w := &spec.Written{Contents: none, Graph: none, Operators: none}
	if most := fewBytes + contents/100; list && int64(len(tensors(m, false)))*digits < most {
		w.Tensors = map[string]string{}
		for _, t := range tensors(m, true) {
			if t.name != "" {
				w.Tensors[t.name] = none[:digits]
			}
		}
		if text, _ := json.Marshal(w); int64(len(text)) > most {
			w.Tensors = nil
		}
	}
	m.MetadataProps = append(slices.Clone(m.MetadataProps), &onnxpb.StringStringEntryProto{Key: new(Key), Value: new("")})
	Put(m, w)
	return bytesOf(m) - before
}

// Put fills the record that Reserve made. Its size stays the same.
func Put(m *onnxpb.ModelProto, w *spec.Written) {
	if text, err := json.Marshal(w); err == nil { // it has strings only
		for _, e := range m.MetadataProps {
			if e.GetKey() == Key {
				e.Value = new(string(text))
			}
		}
	}
}

// Remove removes a record from a model, whose metadata may be shared.
func Remove(m *onnxpb.ModelProto) {
	ours := func(e *onnxpb.StringStringEntryProto) bool { return e.GetKey() == Key }
	if slices.ContainsFunc(m.MetadataProps, ours) {
		m.MetadataProps = slices.DeleteFunc(slices.Clone(m.MetadataProps), ours)
	}
}

// In returns the record of a model; nil if it has none that can be read.
func In(m *onnxpb.ModelProto) *spec.Written {
	for _, e := range m.GetMetadataProps() {
		var w spec.Written
		if e.GetKey() == Key && json.Unmarshal([]byte(e.GetValue()), &w) == nil && w.Contents != "" {
			return &w
		}
	}
	return nil
}

func bytesOf(m *onnxpb.ModelProto) int64 {
	return int64(proto.Size(&onnxpb.ModelProto{MetadataProps: m.MetadataProps}))
}
