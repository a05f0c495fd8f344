package modelfile

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"onnxquant/formats/dtype"
)

// wire encodes a field that holds bytes.
func wire(num protowire.Number, inner ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), bytes.Join(inner, nil))
}

func varint(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

// measured has a process of its own open a model, and returns the memory it took
// in all, the processor's time, and the error.
func measured(t *testing.T, b []byte) (bytes int64, cpu time.Duration, message string) {
	t.Helper()
	cmd := child("open", writeBytes(t, b))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	first, message, _ := strings.Cut(string(out), "\n")
	if bytes, err = strconv.ParseInt(first, 10, 64); err != nil {
		t.Fatal(err)
	}
	return bytes, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), strings.TrimSpace(message)
}

// Files of many tiny parts, which would take up to hundreds of times their size.
// Some pass, barely, with as much filling as they need for that.
func TestHostileParts(t *testing.T) {
	if testing.Short() {
		t.Skip("20 MiB each")
	}
	const size = 20 << 20
	many := func(b ...[]byte) []byte {
		part := bytes.Join(b, nil)
		return bytes.Repeat(part, size/len(part))
	}
	graph := func(b []byte) []byte { return wire(7, b) }
	tensor := func(b []byte) []byte { return graph(wire(5, b)) }
	node := func(b []byte) []byte { return graph(wire(1, b)) }
	attribute := func(b []byte) []byte { return node(wire(5, b)) }
	filled := func(n int) []byte { return make([]byte, n) }

	const limit = "MiB of memory"
	for _, c := range []struct {
		name string
		file []byte
		want string // in the error
	}{
		{"empty raw_data", tensor(many(wire(9))), limit},
		{"empty float_data", tensor(many(wire(4))), limit},
		{"runs of int32_data", tensor(many(wire(4), varint(5, 1))), limit},
		{"int32_data", tensor(many(varint(5, 1))), "data type 0"},
		{"dims", tensor(many(varint(1, 1))), limit},
		{"packed dims", tensor(wire(1, many([]byte{1}))), limit},
		{"ints", attribute(many(varint(8, 1))), limit},
		{"ints, large", attribute(many(varint(8, 1<<60))), ""},
		{"packed ints", attribute(wire(8, many([]byte{1}))), limit},
		{"short packed ints", attribute(many(wire(8, []byte{1}))), limit},
		{"short packed floats", attribute(many(wire(7, filled(4)))), ""},
		{"merged tensors", attribute(many(wire(5, varint(1, 1)))), limit},
		{"merged tensors, filled", attribute(many(wire(5, wire(1, []byte{1}), wire(200, filled(80))))), "data type 0"},
		{"nodes", graph(many(wire(1))), limit},
		{"nodes, filled", graph(many(wire(1, wire(6, filled(50))))), ""},
		{"inputs of a node", node(many(wire(1))), limit},
		{"inputs of a node, filled", node(many(wire(1, filled(8)))), ""},
		{"attributes", node(many(wire(5))), limit},
		{"attributes, filled", node(many(wire(5, wire(13, filled(60))))), ""},
		{"initializers", graph(many(wire(5))), limit},
		{"initializers, filled", graph(many(wire(5, wire(12, filled(100)), wire(9, filled(4)), varint(1, 4), varint(2, 2)))), ""},
		{"value infos", graph(many(wire(13))), limit},
		{"metadata", many(wire(14)), limit},
		{"metadata, filled", many(wire(14, wire(1, filled(20)))), ""},
		{"unknown strings", many(wire(200)), limit},
		{"unknown numbers", many(varint(200, 1)), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			taken, cpu, message := measured(t, c.file)
			if taken > 256<<20 || cpu > 2*slowdown*time.Second {
				t.Errorf("%d MiB, %v", taken>>20, cpu)
			}
			if c.want == "" && message != "" || !strings.Contains(message, c.want) {
				t.Errorf("error %q, want %q", message, c.want)
			}
		})
	}
}

// 300,000 nodes of the usual kind, and 100 MiB of them.
func TestManyNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("100 MiB")
	}
	const nodes = 300_000
	name := []byte("/model/layers.17/self_attn/rotary_emb/Unsqueeze_output_0")
	axis := wire(5, wire(1, []byte("axis")), varint(3, 1), varint(20, 2))
	node := wire(1, wire(1, name), wire(1, name), wire(1, name), wire(2, name), wire(3, name), wire(4, []byte("Concat")), axis, axis)
	info := wire(13, wire(1, name), wire(2, wire(1, varint(1, 1), wire(2, wire(1, varint(1, 2)), wire(1, wire(2, []byte("sequence")))))))
	file := wire(7, bytes.Repeat(slices.Concat(node, info), nodes))
	if mib := len(file) >> 20; mib < 100 {
		t.Fatalf("only %d MiB", mib)
	}
	if _, _, message := measured(t, file); message != "" {
		t.Error(message)
	}
}

// 300,000 initializers of one element, and as many nodes, with short names.
func TestManyInitializers(t *testing.T) {
	if testing.Short() {
		t.Skip("500 MiB")
	}
	const initializers = 300_000
	name := []byte("layer.1234/c")
	tensor := wire(5, varint(1, 1), varint(2, 1), wire(8, name), wire(9, make([]byte, 4)))
	node := wire(1, wire(1, name), wire(1, name), wire(2, name), wire(3, name), wire(4, []byte("Add")))
	if _, _, message := measured(t, wire(7, bytes.Repeat(slices.Concat(tensor, node), initializers))); message != "" {
		t.Error(message)
	}
}

// 100,000 MatMuls of small quantized weights, as a conversion writes them.
func TestManyQuantized(t *testing.T) {
	if testing.Short() {
		t.Skip("300 MiB")
	}
	codes := wire(5, varint(1, 8), varint(1, 8), varint(2, 22), wire(8, []byte("w1234_i4")), wire(9, make([]byte, 32)))
	scales := wire(5, varint(1, 1), varint(1, 8), varint(2, 1), wire(8, []byte("w1234_scale")), wire(9, make([]byte, 32)))
	number := func(name string) []byte { return wire(5, wire(1, []byte(name)), varint(3, 0), varint(20, 2)) }
	decode := wire(1, wire(1, []byte("w1234_i4")), wire(1, []byte("w1234_scale")), wire(2, []byte("w1234_DQ")),
		wire(3, []byte("w1234_DequantizeLinear")), wire(4, []byte("DequantizeLinear")), number("axis"), number("block_size"))
	product := wire(1, wire(1, []byte("m1233")), wire(1, []byte("w1234_DQ")), wire(2, []byte("m1234")), wire(3, []byte("n1234")), wire(4, []byte("MatMul")))
	if _, _, message := measured(t, wire(7, bytes.Repeat(slices.Concat(codes, scales, decode, product), 100_000))); message != "" {
		t.Error(message)
	}
}

// Contents are what the last raw_data of a tensor has, whether it is small or cut out.
func TestSmallContents(t *testing.T) {
	for _, sizes := range [][]int{{0}, {1}, {maxInline}, {maxInline + 1}, {4, 5}, {4, 4 * maxInline}, {4 * maxInline, 4}, {4, 0}} {
		b := slices.Concat(varint(2, uint64(dtype.Uint8)), wire(8, []byte("w")))
		var want []byte
		for i, n := range sizes {
			want = bytes.Repeat([]byte{byte(1 + i)}, n)
			b = append(b, wire(9, want)...)
		}
		m, err := Open(writeBytes(t, slices.Concat(varint(1, 10), wire(7, wire(5, b, varint(1, uint64(len(want))))))))
		if err != nil {
			t.Errorf("%v: %v", sizes, err)
			continue
		}
		defer m.Close()
		w := m.Proto.Graph.Initializer[0]
		p, err := m.Payload(w)
		if err != nil || !bytes.Equal(content(t, p), want) {
			t.Errorf("%v: %v, not %v", sizes, err, want)
		}
		if err := m.Replace(w, bytes.NewReader(make([]byte, len(want)))); err != nil {
			t.Error(err)
		}
		if p, err = m.Payload(w); err != nil || !bytes.Equal(content(t, p), make([]byte, len(want))) {
			t.Errorf("%v: %v, not the new content", sizes, err)
		}
	}
}

func TestStructureIsBounded(t *testing.T) {
	// The file is not read to its end: a hole is as good as bytes.
	path := writeBytes(t, protowire.AppendVarint(protowire.AppendTag(nil, 6, protowire.BytesType), maxStructure))
	if err := os.Truncate(path, maxStructure+100); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "outside of tensors") {
		t.Errorf("error %v", err)
	}
}
