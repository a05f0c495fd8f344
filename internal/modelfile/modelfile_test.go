package modelfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

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

func ptr[T any](v T) *T { return &v }

func model(tensors ...*onnxpb.TensorProto) *onnxpb.ModelProto {
	return &onnxpb.ModelProto{IrVersion: ptr(int64(10)), Graph: &onnxpb.GraphProto{Initializer: tensors}}
}

func tensor(dtype DType, dims ...int64) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{Name: ptr("w"), DataType: ptr(int32(dtype)), Dims: dims}
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
		{"raw small", set(tensor(Float32, 2), func(t *onnxpb.TensorProto) { t.RawData = le[float32](1, 2) }), le[float32](1, 2)},
		{"raw large", set(tensor(Float32, many), func(t *onnxpb.TensorProto) { t.RawData = le(floats...) }), le(floats...)},
		{"float_data", set(tensor(Float32, many), func(t *onnxpb.TensorProto) { t.FloatData = floats }), le(floats...)},
		{"float16 in int32_data", set(tensor(Float16, many), func(t *onnxpb.TensorProto) { t.Int32Data = halves }), le(halfBits...)},
		{"int64_data", set(tensor(DType(onnxpb.TensorProto_INT64), many), func(t *onnxpb.TensorProto) { t.Int64Data = longs }), le(longs...)},
		{"uint32 in uint64_data", set(tensor(DType(onnxpb.TensorProto_UINT32), 2), func(t *onnxpb.TensorProto) { t.Uint64Data = []uint64{1, math.MaxUint32} }), le[uint32](1, math.MaxUint32)},
		{"double_data", set(tensor(Float64, 2), func(t *onnxpb.TensorProto) { t.DoubleData = []float64{1, math.Pi} }), le(1, math.Pi)},
		{"complex64 in float_data", set(tensor(DType(onnxpb.TensorProto_COMPLEX64), 1), func(t *onnxpb.TensorProto) { t.FloatData = []float32{1, 2} }), le[float32](1, 2)},
		{"int4 in int32_data", set(tensor(Int4, 3), func(t *onnxpb.TensorProto) { t.Int32Data = []int32{0x21, 0x0f} }), []byte{0x21, 0x0f}},
		{"empty", tensor(Float32, 0, 5), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Open(writeModel(t, model(c.tensor)))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			got := m.Proto.Graph.Initializer[0]
			if len(got.RawData)+len(got.FloatData)+len(got.Int32Data)+len(got.Int64Data) > 0 {
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
	b = protowire.AppendVarint(b, uint64(Float32))
	for i := range n {
		b = protowire.AppendTag(b, fieldFloatData, protowire.Fixed32Type)
		b = protowire.AppendFixed32(b, math.Float32bits(float32(i)))
		want = append(want, le(float32(i))...)
	}
	b = protowire.AppendTag(b, fieldName, protowire.BytesType)
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
		w := tensor(Float32, 4)
		w.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
		for i := 0; i < len(kv); i += 2 {
			w.ExternalData = append(w.ExternalData, &onnxpb.StringStringEntryProto{Key: &kv[i], Value: &kv[i+1]})
		}
		return model(w)
	}
	for _, c := range []struct {
		name string
		m    *onnxpb.ModelProto
		want string
	}{
		{"short", model(tensor(Float32, 3)), "0 bytes of data, want 12"},
		{"negative", model(tensor(Float32, -3)), "negative dimension"},
		{"overflow", model(tensor(Float32, 1<<40, 1<<40)), "overflows"},
		{"type", model(tensor(DType(99), 1)), "data type 99"},
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

func TestSymbolicLinkOut(t *testing.T) {
	w := tensor(Float32, 1)
	w.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
	w.ExternalData = []*onnxpb.StringStringEntryProto{{Key: ptr("location"), Value: ptr("w.bin")}}
	path := writeModel(t, model(w))
	outside := filepath.Join(t.TempDir(), "outside.bin")
	if err := os.WriteFile(outside, make([]byte, 4), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(filepath.Dir(path), "w.bin")); err != nil {
		t.Skip(err) // a system without symbolic links
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("error %v", err)
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
		w := tensor(Uint8, int64(len(b)))
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
}

// FuzzOpen holds the cut against the protobuf library: what it accepts, the
// library accepts, and the structure is the library's message without content.
func FuzzOpen(f *testing.F) {
	w := tensor(Float32, 2)
	w.FloatData = []float32{1, 2}
	raw := tensor(Uint8, 3)
	raw.RawData = []byte("abc")
	for _, m := range []*onnxpb.ModelProto{model(w), model(raw, w), {}} {
		b, _ := proto.Marshal(m)
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		structure, pieces, err := cut(bytesAt(b), int64(len(b)))
		if err != nil {
			return
		}
		cutOut := &onnxpb.ModelProto{}
		whole := &onnxpb.ModelProto{}
		errCut, errWhole := proto.Unmarshal(structure, cutOut), proto.Unmarshal(b, whole)
		if (errCut == nil) != (errWhole == nil) {
			t.Fatalf("cut: %v, whole: %v", errCut, errWhole)
		}
		if errCut != nil {
			return
		}
		m := &Model{file: &file{}, pieces: pieces}
		for _, w := range Tensors(cutOut) {
			if p, err := m.resolve(w); err == nil && p != nil && p.Size() < 1<<20 {
				for _, s := range p.parts {
					if s.r == io.ReaderAt(m.file) {
						t.Skip("larger than what is kept in memory")
					}
				}
				if w.DataLocation == nil {
					content(t, p)
				}
			}
			w.Payload = nil
		}
		for _, w := range Tensors(whole) {
			w.RawData, w.FloatData, w.Int32Data, w.Int64Data, w.DoubleData, w.Uint64Data = nil, nil, nil, nil, nil, nil
		}
		if !proto.Equal(cutOut, whole) {
			t.Fatal("the structure differs")
		}
	})
}
