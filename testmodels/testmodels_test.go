package testmodels

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// Every value is defined before it is read, every payload has the size that
// its shape says, and the file reads back as what was built.
func TestKinds(t *testing.T) {
	for _, k := range Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			m, err := Build(k.Name, 1)
			if err != nil {
				t.Fatal(err)
			}
			checkGraph(t, m, m.Proto.Graph, map[string]bool{})

			path := filepath.Join(t.TempDir(), "m.onnx")
			if err := m.Write(path); err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var back onnxpb.ModelProto
			if err := proto.Unmarshal(raw, &back); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(&back, m.Proto) {
				t.Error("the file holds another model")
			}
		})
	}
	if _, err := Build("nonesuch", 1); err == nil {
		t.Error("an unknown kind was built")
	}
}

// widths are the bytes of an element.
var widths = map[onnxpb.TensorProto_DataType]int64{
	onnxpb.TensorProto_FLOAT:    4,
	onnxpb.TensorProto_FLOAT16:  2,
	onnxpb.TensorProto_BFLOAT16: 2,
	onnxpb.TensorProto_DOUBLE:   8,
}

func checkGraph(t *testing.T, m *Model, g *onnxpb.GraphProto, outer map[string]bool) {
	known := maps.Clone(outer)
	define := func(name string) {
		if known[name] {
			t.Errorf("%q is defined twice", name)
		}
		known[name] = true
	}
	for _, v := range g.Input {
		define(v.GetName())
	}
	for _, x := range g.Initializer {
		define(x.GetName())
		width, n := widths[onnxpb.TensorProto_DataType(x.GetDataType())], int64(1)
		for _, d := range x.Dims {
			n *= d
		}
		if got := int64(len(payload(t, m, x))); got != n*width {
			t.Errorf("%q has %d bytes, its shape needs %d", x.GetName(), got, n*width)
		}
	}
	for _, n := range g.Node {
		for _, in := range n.Input {
			if !known[in] {
				t.Errorf("%s reads %q, which nothing defines", n.GetName(), in)
			}
		}
		for _, a := range n.Attribute {
			if a.G != nil {
				checkGraph(t, m, a.G, known)
			}
		}
		define(n.Output[0])
	}
	for _, v := range g.Output {
		if !known[v.GetName()] {
			t.Errorf("output %q is never computed", v.GetName())
		}
	}
}

func payload(t *testing.T, m *Model, x *onnxpb.TensorProto) []byte {
	if x.GetDataLocation() != onnxpb.TensorProto_EXTERNAL {
		return x.RawData
	}
	kv := map[string]string{}
	for _, e := range x.ExternalData {
		kv[e.GetKey()] = e.GetValue()
	}
	file, ok := m.Data[kv["location"]]
	if !ok {
		t.Fatalf("%q lies in a file that is not there", x.GetName())
	}
	offset, err1 := strconv.Atoi(kv["offset"])
	length, err2 := strconv.Atoi(kv["length"])
	if err1 != nil || err2 != nil {
		t.Fatalf("%q: %v %v", x.GetName(), err1, err2)
	}
	return file[offset:][:length]
}

// The values are part of the contract: figures measured on one machine can be
// had on another.
func TestWeightsAreFixed(t *testing.T) {
	const want = 0xf51ac05a
	got := crc32.ChecksumIEEE(MLP(1, 64, 96).Proto.Graph.Initializer[0].RawData)
	if got != want {
		t.Errorf("checksum of w0 is %#x, want %#x", got, want)
	}
	if other := crc32.ChecksumIEEE(MLP(2, 64, 96).Proto.Graph.Initializer[0].RawData); other == got {
		t.Error("another seed gives the same weights")
	}
}

func TestWeightsAreBellShaped(t *testing.T) {
	const k = 4096
	raw := MLP(7, k, 64).Proto.Graph.Initializer[0].RawData
	var sum, squares float64
	for i := 0; i < len(raw); i += 4 {
		x := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:])))
		sum, squares = sum+x, squares+x*x
	}
	n := float64(len(raw) / 4)
	if mean, sigma := sum/n, math.Sqrt(squares/n); math.Abs(mean) > 1e-4 || math.Abs(sigma*64-1) > 0.01 {
		t.Errorf("mean %g, deviation %g; want 0 and %g", mean, sigma, 1/math.Sqrt(k))
	}
}

func TestBfloat16(t *testing.T) {
	for _, c := range []struct {
		in   uint32
		want uint16
	}{{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82}, {0xbf7fffff, 0xbf80}} {
		if got := bfloat16(math.Float32frombits(c.in)); got != c.want {
			t.Errorf("bfloat16(%#x) = %#x, want %#x", c.in, got, c.want)
		}
	}
}

func TestWriteBig(t *testing.T) {
	for _, big := range []Big{
		{Layers: 3, K: 24, N: 40, Seed: 5},
		{Layers: 2, K: 24, N: 40, Float16: true},
		{Layers: 2, K: 24, N: 40, TransB: true},
		{Layers: 3, K: 24, N: 40, Embedded: true},
		{Layers: 1, K: 1 << 12, N: 1<<10 + 3}, // elements begin anew
	} {
		path := filepath.Join(t.TempDir(), "big.onnx")
		if err := WriteBig(path, big); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m := &Model{Proto: &onnxpb.ModelProto{}}
		if err := proto.Unmarshal(raw, m.Proto); err != nil {
			t.Fatal(err)
		}
		size := int64(0)
		for _, w := range m.Proto.Graph.Initializer {
			size += int64(len(w.RawData))
		}
		if !big.Embedded {
			data, err := os.ReadFile(path + ".data")
			if err != nil {
				t.Fatal(err)
			}
			m.Data = map[string][]byte{"big.onnx.data": data}
			size = int64(len(data))
		}
		if size != big.Bytes() {
			t.Errorf("%+v: %d bytes of weights, want %d", big, size, big.Bytes())
		}
		checkGraph(t, m, m.Proto.Graph, map[string]bool{})
	}
}
