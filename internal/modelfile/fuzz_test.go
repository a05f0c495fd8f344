package modelfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/testmodels"
)

// FuzzOpen holds the cut against the protobuf library: what it accepts, the
// library accepts, the structure is the library's message without contents, and
// the contents are the library's.
func FuzzOpen(f *testing.F) {
	floats := tensor(dtype.Float32, 2)
	floats.FloatData = []float32{1, 2}
	halves := tensor(dtype.Float16, 3)
	halves.Int32Data = []int32{0, -1, 65535}
	longs := tensor(dtype.Int64, 2)
	longs.Int64Data = []int64{-1, 1 << 40}
	large := tensor(dtype.Uint8, markEvery+9)
	large.RawData = bytes.Repeat([]byte("abc"), markEvery)[:markEvery+9]
	many := tensor(dtype.Uint8, markEvery+1)
	many.Int32Data = make([]int32, markEvery+1)
	external := tensor(dtype.Float32, 1)
	external.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
	external.ExternalData = []*onnxpb.StringStringEntryProto{{Key: ptr("location"), Value: ptr("data")}, {Key: ptr("offset"), Value: ptr("4")}}
	grouped := model(floats)
	grouped.ProtoReflect().SetUnknown(group(9000, group(5, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 300))))
	for _, m := range []*onnxpb.ModelProto{model(floats, halves, longs), model(large, floats), model(many), model(external), grouped, {}} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}

	for _, b := range testmodels.Seeds() {
		f.Add(b)
	}

	folder := f.TempDir()
	data := []byte("some external data")
	if err := os.WriteFile(filepath.Join(folder, "data"), data, 0o666); err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(folder, "model.onnx")
	f.Fuzz(func(t *testing.T, b []byte) {
		got, want := &onnxpb.ModelProto{}, &onnxpb.ModelProto{}
		_, errCut := cut(bytes.NewReader(b), int64(len(b)), got)
		if errCut != nil && !errors.Is(errCut, proto.Error) {
			return
		}
		errWhole := proto.Unmarshal(b, want)
		if (errCut == nil) != (errWhole == nil) {
			t.Fatalf("cut: %v, whole: %v", errCut, errWhole)
		}
		if errCut != nil {
			return
		}
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if m, err := Open(path); err == nil {
			defer m.Close()
			checkContents(t, m, want, data)
		}
		for _, w := range Tensors(got) {
			w.Payload, w.RawData = nil, nil
		}
		for _, w := range Tensors(want) {
			w.RawData, w.FloatData, w.Int32Data, w.Int64Data, w.DoubleData, w.Uint64Data = nil, nil, nil, nil, nil, nil
		}
		if !proto.Equal(got, want) {
			t.Fatal("the structure differs")
		}
	})
}

// checkContents compares the contents of m with those of the same model decoded
// by the protobuf library.
func checkContents(t *testing.T, m *Model, whole *onnxpb.ModelProto, external []byte) {
	var tensors []*onnxpb.TensorProto
	for _, w := range Tensors(m.Proto) {
		tensors = append(tensors, w)
	}
	i := 0
	for where, w := range Tensors(whole) {
		p, err := m.Payload(tensors[i])
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		if i++; p == nil {
			continue // strings
		}
		want := decoded(w)
		if w.GetDataLocation() == onnxpb.TensorProto_EXTERNAL {
			e, _ := ParseExternal(w)
			if want = external; e.Location != "data" {
				continue // the model itself
			}
			want = want[e.Offset:][:p.Size()]
		}
		if got := content(t, p); !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes %.40x, want %d bytes %.40x", where, len(got), got, len(want), want)
		}
	}
}

// decoded returns the content of a tensor that the protobuf library has decoded.
func decoded(t *onnxpb.TensorProto) []byte {
	b := append([]byte{}, t.RawData...)
	for _, v := range t.FloatData {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	for _, v := range t.DoubleData {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	width := max(dtype.DType(t.GetDataType()).Bits()/8, 1)
	for _, v := range t.Int32Data {
		b = append(b, binary.LittleEndian.AppendUint32(nil, uint32(v))[:width]...)
	}
	for _, v := range t.Int64Data {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	for _, v := range t.Uint64Data {
		b = append(b, binary.LittleEndian.AppendUint64(nil, v)[:width]...)
	}
	return b
}

func group(num protowire.Number, inner []byte) []byte {
	b := protowire.AppendTag(nil, num, protowire.StartGroupType)
	b = append(b, inner...)
	return protowire.AppendTag(b, num, protowire.EndGroupType)
}

// FuzzExternal holds what ParseExternal accepts to what the reader relies on.
func FuzzExternal(f *testing.F) {
	for _, loc := range []string{"data", "a/b.bin", "./a//b", "a/../b", "a/../../b", "/a", `C:\a`, "c:a", "..", "", "a\x00b", "\xff"} {
		f.Add(loc, "4096", "16")
	}
	f.Add("data", "-1", "0x10")
	f.Add("data", "9223372036854775807", "9223372036854775808")
	f.Fuzz(func(t *testing.T, loc, offset, length string) {
		w := &onnxpb.TensorProto{}
		for _, kv := range [][2]string{{"location", loc}, {"offset", offset}, {"length", length}, {"checksum", "x"}} {
			w.ExternalData = append(w.ExternalData, &onnxpb.StringStringEntryProto{Key: &kv[0], Value: &kv[1]})
		}
		e, err := ParseExternal(w)
		if err != nil {
			if msg := err.Error(); len(msg) > 600 || strings.ContainsFunc(msg, unicode.IsControl) {
				t.Fatalf("error of %d bytes: %q", len(msg), msg)
			}
			return
		}
		if e.Location != loc || !filepath.IsLocal(filepath.FromSlash(loc)) && filepath.Separator == '/' {
			t.Fatalf("location %q leads out", e.Location)
		}
		if e.Offset < 0 || e.Length < 0 {
			t.Fatalf("offset %d, length %d", e.Offset, e.Length)
		}
	})
}
