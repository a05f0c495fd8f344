package modelfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// writeModel writes m as a file in a new folder and returns its path.
func writeModel(t testing.TB, m proto.Message) string {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return writeBytes(t, b)
}

func writeBytes(t testing.TB, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func symlink(t *testing.T, to, link string) {
	t.Helper()
	if err := os.Symlink(to, link); err != nil {
		t.Skip(err) // a system without symbolic links
	}
}

func ptr[T any](v T) *T { return &v }

func model(tensors ...*onnxpb.TensorProto) *onnxpb.ModelProto {
	return &onnxpb.ModelProto{IrVersion: ptr(int64(10)), Graph: &onnxpb.GraphProto{Initializer: tensors}}
}

func tensor(typ dtype.DType, dims ...int64) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{Name: ptr("w"), DataType: ptr(int32(typ)), Dims: dims}
}

// content reads all of a payload, in uneven steps.
func content(t testing.TB, p *Payload) []byte {
	t.Helper()
	var all []byte
	for step := int64(1); int64(len(all)) < p.Size(); step = step*3 + 1 {
		buf := make([]byte, min(step, p.Size()-int64(len(all))))
		if n, err := p.ReadAt(buf, int64(len(all))); n < len(buf) {
			t.Fatalf("ReadAt: %d of %d bytes: %v", n, len(buf), err)
		}
		all = append(all, buf...)
	}
	if n, err := p.ReadAt(make([]byte, 1), p.Size()); n != 0 || err != io.EOF {
		t.Fatalf("ReadAt behind the end: %d, %v", n, err)
	}
	return all
}

func le[T any](values ...T) []byte {
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, values)
	return b.Bytes()
}

func TestPayloadCodings(t *testing.T) {
	const many = 3*markEvery + 5 // several marks, and more than smallPiece
	floats := make([]float32, many)
	halves, halfBits := make([]int32, many), make([]uint16, many)
	longs := make([]int64, many)
	for i := range many {
		floats[i] = float32(i) - 7.5
		halves[i], halfBits[i] = int32(i), uint16(i)
		longs[i] = int64(i-many/2) << (i % 50)
	}
	set := func(t *onnxpb.TensorProto, f func(*onnxpb.TensorProto)) *onnxpb.TensorProto { f(t); return t }
	for _, c := range []struct {
		name   string
		tensor *onnxpb.TensorProto
		want   []byte
	}{
		{"raw small", set(tensor(dtype.Float32, 2), func(t *onnxpb.TensorProto) { t.RawData = le[float32](1, 2) }), le[float32](1, 2)},
		{"raw large", set(tensor(dtype.Float32, many), func(t *onnxpb.TensorProto) { t.RawData = le(floats...) }), le(floats...)},
		{"float_data", set(tensor(dtype.Float32, many), func(t *onnxpb.TensorProto) { t.FloatData = floats }), le(floats...)},
		{"float16 in int32_data", set(tensor(dtype.Float16, many), func(t *onnxpb.TensorProto) { t.Int32Data = halves }), le(halfBits...)},
		{"int64_data", set(tensor(dtype.Int64, many), func(t *onnxpb.TensorProto) { t.Int64Data = longs }), le(longs...)},
		{"uint32 in uint64_data", set(tensor(dtype.Uint32, 2), func(t *onnxpb.TensorProto) { t.Uint64Data = []uint64{1, math.MaxUint32} }), le[uint32](1, math.MaxUint32)},
		{"double_data", set(tensor(dtype.Float64, 2), func(t *onnxpb.TensorProto) { t.DoubleData = []float64{1, math.Pi} }), le(1, math.Pi)},
		{"complex64 in float_data", set(tensor(dtype.Complex64, 1), func(t *onnxpb.TensorProto) { t.FloatData = []float32{1, 2} }), le[float32](1, 2)},
		{"int4 in int32_data", set(tensor(dtype.Int4, 3), func(t *onnxpb.TensorProto) { t.Int32Data = []int32{0x21, 0x0f} }), []byte{0x21, 0x0f}},
		{"empty", tensor(dtype.Float32, 0, 5), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Open(writeModel(t, model(c.tensor)))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			got := m.Proto.Graph.Initializer[0]
			if len(got.RawData) > maxInline || len(got.FloatData)+len(got.Int32Data)+len(got.Int64Data) > 0 {
				t.Error("content is in the structure")
			}
			p, err := m.Payload(got)
			if err != nil {
				t.Fatal(err)
			}
			if b := content(t, p); !bytes.Equal(b, c.want) {
				t.Errorf("got %d bytes %.40x, want %d bytes %.40x", len(b), b, len(c.want), c.want)
			}
		})
	}
}

// Elements that are not packed, and packed in several runs, are legal too.
func TestPayloadUnpacked(t *testing.T) {
	const n = 2*markEvery + 3
	var b, want []byte
	b = protowire.AppendTag(b, 1, protowire.VarintType)
	b = protowire.AppendVarint(b, n+2)
	b = protowire.AppendTag(b, 2, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(dtype.Float32))
	for i := range n {
		b = protowire.AppendTag(b, fieldFloatData, protowire.Fixed32Type)
		b = protowire.AppendFixed32(b, math.Float32bits(float32(i)))
		want = append(want, le(float32(i))...)
	}
	b = protowire.AppendTag(b, 8, protowire.BytesType)
	b = protowire.AppendString(b, "w")
	b = protowire.AppendTag(b, fieldFloatData, protowire.BytesType)
	b = protowire.AppendBytes(b, le[float32](-1, -2))
	want = append(want, le[float32](-1, -2)...)

	g := protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), b)
	m, err := Open(writeBytes(t, protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), g)))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p, _ := m.Payload(m.Proto.Graph.Initializer[0])
	if got := content(t, p); !bytes.Equal(got, want) {
		t.Error("content differs")
	}
}

func TestOpenErrors(t *testing.T) {
	external := func(kv ...string) *onnxpb.ModelProto {
		w := tensor(dtype.Float32, 4)
		w.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
		for i := 0; i < len(kv); i += 2 {
			w.ExternalData = append(w.ExternalData, &onnxpb.StringStringEntryProto{Key: &kv[i], Value: &kv[i+1]})
		}
		return model(w)
	}
	uint32s := tensor(dtype.Uint32, 1)
	uint32s.Uint64Data = []uint64{1 << 32}
	for _, c := range []struct {
		name string
		m    *onnxpb.ModelProto
		want string
	}{
		{"short", model(tensor(dtype.Float32, 3)), "0 bytes of data, want 12"},
		{"negative", model(tensor(dtype.Float32, -3)), "negative dimension"},
		{"overflow", model(tensor(dtype.Float32, 1<<40, 1<<40)), "overflows"},
		{"type", model(tensor(dtype.DType(99), 1)), "data type 99"},
		{"no location", external("offset", "0"), "without a location"},
		{"twice", external("location", "a", "location", "b"), "twice"},
		{"absolute", external("location", "/etc/passwd"), "absolute"},
		{"drive", external("location", "C:/w.bin"), "absolute"},
		{"backslash", external("location", `..\w.bin`), "backslash"},
		{"up", external("location", "a/../../w.bin"), "leaves the model's folder"},
		{"nul", external("location", "w\x00.bin"), "NUL"},
		{"missing", external("location", "missing.bin"), "no such file"},
		{"folder", external("location", "."), "is a folder"},
		{"hex", external("location", "data", "offset", "0x10"), "not a byte count"},
		{"huge", external("location", "data", "offset", strings.Repeat("9", 5000)), "not a byte count"},
		{"bool", model(ints(dtype.Bool, 1, 256)), "int32_data holds 256"},
		{"bool true", model(ints(dtype.Bool, -1)), "int32_data holds -1"},
		{"float16", model(ints(dtype.Float16, 65535, -32768, 70000)), "int32_data holds 70000"},
		{"bfloat16", model(ints(dtype.BFloat16, -32769)), "int32_data holds -32769"},
		{"int8", model(ints(dtype.Int8, 127, 300)), "int32_data holds 300"},
		{"int8 unsigned", model(ints(dtype.Int8, 128)), "int32_data holds 128"},
		{"uint8", model(ints(dtype.Uint8, 255, 256)), "int32_data holds 256"},
		{"uint16", model(ints(dtype.Uint16, 65536)), "int32_data holds 65536"},
		{"int4", model(ints(dtype.Int4, 255, 0x100)), "int32_data holds 256"},
		{"float8", model(ints(dtype.Float8E4M3FN, 256)), "int32_data holds 256"},
		{"far", model(ints(dtype.Int8, append(make([]int32, 3*markEvery+7), -129)...)), "int32_data holds -129"},
		{"uint32", model(uint32s), "uint64_data holds 4294967296"},
		{"range", external("location", "data", "offset", "8"), "passes the end"},
		{"length", external("location", "data", "length", "12"), "want 16"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := writeModel(t, c.m)
			if err := os.WriteFile(filepath.Join(filepath.Dir(path), "data"), make([]byte, 20), 0o666); err != nil {
				t.Fatal(err)
			}
			m, err := Open(path)
			if err == nil {
				m.Close()
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"w"`) || !errors.Is(err, ErrTensor) {
				t.Errorf("error %q does not say %q", err, c.want)
			}
			if strings.Contains(err.Error(), "\n") || len(err.Error()) > 500 {
				t.Errorf("error is not one line: %q", err)
			}
		})
	}
}

// ints makes a tensor with values in int32_data.
func ints(typ dtype.DType, values ...int32) *onnxpb.TensorProto {
	w := tensor(typ, int64(len(values))*max(8/typ.Bits(), 1))
	w.Int32Data = values
	return w
}

// The offset in the message is that of the value in the file.
func TestRangeErrorOffset(t *testing.T) {
	unpacked := bytes.Repeat(varint(5, 3), markEvery+5)
	for name, data := range map[string][]byte{
		"packed":   wire(5, bytes.Repeat([]byte{3}, markEvery+5), []byte{0xe5, 0x11}),
		"unpacked": append(unpacked, varint(5, 2277)...),
	} {
		b := wire(7, wire(5, varint(1, markEvery+6), varint(2, uint64(dtype.Int8)), wire(8, []byte("w")), data))
		_, err := Open(writeBytes(t, b))
		at := bytes.Index(b, []byte{0xe5, 0x11})
		if name == "unpacked" {
			at-- // the tag
		}
		if want := fmt.Sprintf("int32_data holds 2277 at offset %d,", at); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
}

// Both the unsigned and the sign-extended form of a bit pattern are in use.
func TestBitPatterns(t *testing.T) {
	for _, c := range []struct {
		dtype dtype.DType
		want  []byte
	}{
		{dtype.Float16, []byte{0, 0x80, 0xff, 0xff, 0, 0x80, 0xff, 0xff}},
		{dtype.BFloat16, []byte{0, 0x80, 0xff, 0xff, 0, 0x80, 0xff, 0xff}},
	} {
		m, err := Open(writeModel(t, model(ints(c.dtype, 0x8000, 0xffff, -0x8000, -1))))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		p, _ := m.Payload(m.Proto.Graph.Initializer[0])
		if got := content(t, p); !bytes.Equal(got, c.want) {
			t.Errorf("%v: got %x", c.dtype, got)
		}
	}
}

// Inline keeps the field that a content is in, and only the raw_data that counts.
func TestInline(t *testing.T) {
	floats := tensor(dtype.Float32, 2)
	floats.FloatData = []float32{1, 2}
	halves := tensor(dtype.Float16, 2)
	halves.Int32Data = []int32{-1, 7}
	raw := tensor(dtype.Uint8, 3)
	raw.RawData = []byte("abc")
	b, err := proto.Marshal(model(floats, halves, raw))
	if err != nil {
		t.Fatal(err)
	}
	twice := wire(5, varint(1, 3), varint(2, uint64(dtype.Uint8)), wire(8, []byte("w")), wire(9, make([]byte, 1000)), wire(5), wire(9, []byte("xyz")), wire(5))
	unpacked := wire(5, varint(1, 2), varint(2, uint64(dtype.Int8)), wire(8, []byte("w")), varint(5, 1), wire(8, []byte("w")), varint(5, 1<<64-2))
	b = append(b, wire(7, twice, unpacked)...)
	m, err := Open(writeBytes(t, b))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	last := tensor(dtype.Uint8, 3)
	last.RawData = []byte("xyz")
	two := tensor(dtype.Int8, 2)
	two.Int32Data = []int32{1, -2}
	for i, want := range []*onnxpb.TensorProto{floats, halves, raw, last, two} {
		src := m.Proto.Graph.Initializer[i]
		got := proto.Clone(src).(*onnxpb.TensorProto)
		got.Payload = nil
		if err := m.Inline(got, src); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

// Symbolic links are followed within the model's folder only.
func TestExternalLinks(t *testing.T) {
	for _, c := range []struct {
		location, want string // in the error; "" for none
	}{
		{"inside", ""},
		{"sub/back", ""},
		{"absolute", "cp -rL"},
		{"relative", "cp -rL"},
		{"folder/outside.bin", "cp -rL"},
		{"lost", "cp -rL"}, // whether it leads to something is not looked at
		{"sub/escapes", "no such file"},
		{"gone", "no such file"},
		{"circle", "too many"},
	} {
		w := tensor(dtype.Float32, 1)
		w.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
		w.ExternalData = []*onnxpb.StringStringEntryProto{{Key: ptr("location"), Value: &c.location}}
		path := writeModel(t, model(w))
		here, outside := filepath.Dir(path), t.TempDir()
		if err := os.Mkdir(filepath.Join(here, "sub"), 0o777); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{filepath.Join(outside, "outside.bin"), filepath.Join(here, "w.bin")} {
			if err := os.WriteFile(name, make([]byte, 4), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		up, err := filepath.Rel(here, outside)
		if err != nil {
			t.Fatal(err)
		}
		symlink(t, "w.bin", filepath.Join(here, "inside"))
		symlink(t, "../inside", filepath.Join(here, "sub", "back"))
		symlink(t, filepath.Join(outside, "outside.bin"), filepath.Join(here, "absolute"))
		symlink(t, filepath.Join(up, "outside.bin"), filepath.Join(here, "relative"))
		symlink(t, outside, filepath.Join(here, "folder"))
		symlink(t, "../lost.bin", filepath.Join(here, "lost"))
		symlink(t, "escapes.bin", filepath.Join(here, "sub", "escapes"))
		symlink(t, "nothing.bin", filepath.Join(here, "gone"))
		symlink(t, "circle", filepath.Join(here, "circle"))
		m, err := Open(path)
		if err == nil {
			m.Close()
		}
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: error %v, want %q", c.location, err, c.want)
		}
	}
}

// A layout filled with the contents that were cut out of a file is that file
// again, up to the order of fields.
func TestLayoutRestoresModel(t *testing.T) {
	big := make([]byte, 100_000)
	for i := range big {
		big[i] = byte(i * 7)
	}
	raw := func(name string, b []byte) *onnxpb.TensorProto {
		w := tensor(dtype.Uint8, int64(len(b)))
		w.Name, w.RawData = &name, b
		return w
	}
	inner := &onnxpb.GraphProto{Initializer: []*onnxpb.TensorProto{raw("inner", big[:300])}}
	want := model(raw("a", big), raw("b", []byte{1}), raw("c", nil))
	want.Graph.Node = []*onnxpb.NodeProto{{OpType: ptr("If"), Attribute: []*onnxpb.AttributeProto{
		{Name: ptr("then_branch"), G: inner},
		{Name: ptr("value"), T: raw("attribute", big[:70_000])},
	}}}
	want.Functions = []*onnxpb.FunctionProto{{Name: ptr("f"), Node: []*onnxpb.NodeProto{{Attribute: []*onnxpb.AttributeProto{{T: raw("function", big[5:9])}}}}}}
	want.Graph.Initializer[2].RawData = []byte{}
	want.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 9000, protowire.VarintType), 5))

	m, err := Open(writeModel(t, want))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var payloads []*Payload
	var sizes []int64
	for _, w := range Tensors(m.Proto) {
		p, err := m.Payload(w)
		if err != nil {
			t.Fatal(err)
		}
		w.Payload = []uint32{uint32(len(payloads))}
		payloads = append(payloads, p)
		sizes = append(sizes, p.Size())
	}
	l, err := NewLayout(m.Proto, sizes)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := l.WriteStructure(f); err != nil {
		t.Fatal(err)
	}
	for i, p := range payloads {
		if _, err := f.WriteAt(content(t, p), l.Offsets[i]); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(b)) != l.Size {
		t.Errorf("%d bytes, layout says %d", len(b), l.Size)
	}
	got := &onnxpb.ModelProto{}
	if err := proto.Unmarshal(b, got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Error("the model differs")
	}
	if err := l.Check(f, l.Size); err != nil {
		t.Error(err)
	}
	for i, change := range b { // in every byte of the structure, and none of the payloads
		payload := false
		for k, off := range l.Offsets {
			payload = payload || int64(i) >= off && int64(i) < off+sizes[k]
		}
		if payload && i%1000 > 0 {
			continue
		}
		if _, err := f.WriteAt([]byte{change ^ 1}, int64(i)); err != nil {
			t.Fatal(err)
		}
		if err := l.Check(f, l.Size); (err == nil) != payload {
			t.Errorf("byte %d of a payload: %v; error %v", i, payload, err)
		}
		if _, err := f.WriteAt([]byte{change}, int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	if l.Check(f, l.Size-1) == nil {
		t.Error("another size is not found")
	}
}
