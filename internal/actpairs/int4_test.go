package actpairs_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/actpairs"
	"onnxquant/internal/graph"
	"onnxquant/internal/target"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/spec"
)

// int4 asks for weights of 4 bits in blocks, or with a scale per channel.
func int4(block int) func(*actpairs.Options) {
	return func(o *actpairs.Options) {
		o.Activations.Type = dtype.Uint16
		perChannel(o)
		o.Int4 = actpairs.Int4{Block: func(*graph.Value) (int, bool) { return block, true }, Rule: target.Of(spec.QNN).Static.Int4}
	}
}

// QNN's operators read weights of 4 bits in different ways.
func TestInt4(t *testing.T) {
	const some = "x=-1,1 h=-1,1 k=-1,1 y=-1,1"
	for _, c := range []struct {
		name, values, nodes string
		block               int
		want                string // of w
		along, size         int
	}{
		{"MatMul", "x:float[2,64] w:float[64,4]=1,-2,3", "y = MatMul(x, w)", 32, "int4 axis 1", 0, 32},
		{"block that does not fit", "x:float[2,48] w:float[48,4]=1,-2,3", "y = MatMul(x, w)", 32, "int4 axis 1", 0, 24},
		{"no block fits", "x:float[2,36] w:float[36,4]=1,-2,3", "y = MatMul(x, w)", 32, "int4 axis 1", 0, 0},
		{"by channel", "x:float[2,64] w:float[64,4]=1,-2,3", "y = MatMul(x, w)", spec.PerChannel, "int4 axis 1", 0, 0},
		{"stored factor in front", "x:float[64,2] w:float[4,64]=1,-2,3", "y = MatMul(w, x)", 32, "int8 axis 1", 0, 0},
		{"stack", "x:float[2,2,64] w:float[2,64,4]=1,-2,3", "y = MatMul(x, w)", 32, "int8", 0, 0},
		{"Gemm", "x:float[2,64] w:float[64,4]=1,-2,3", "y = Gemm(x, w)", 32, "int4 axis 1", 0, 0},
		{"transposed Gemm", "x:float[2,64] w:float[4,64]=1,-2,3", "y = Gemm<transB=1>(x, w)", 32, "int4 axis 0", 0, 0},
		{"Conv of one pixel", "x:float[1,32,4,4] w:float[4,32,1,1]=1,-2,3", "y = Conv(x, w)", 32, "int4 axis 0", 1, 32},
		{"Conv of nine pixels", "x:float[1,32,4,4] w:float[4,32,3,3]=1,-2,3", "y = Conv(x, w)", 32, "int4 axis 0", 0, 0},
		{"Conv of one dimension", "x:float[1,32,4] w:float[4,32,1]=1,-2,3", "y = Conv(x, w)", 32, "int4 axis 0", 0, 0},
		{"ConvTranspose", "x:float[1,32,4,4] w:float[32,4,3,3]=1,-2,3", "y = ConvTranspose(x, w)", 32, "int8 axis 1", 0, 0},
		{"two products", "x:float[64,64] w:float[64,64]=1,-2,3", "h = MatMul(x, w)\ny = MatMul(h, w)", 32, "int4 axis 1", 0, 32},
		{"two products of other axes", "x:float[64,64] w:float[64,64]=1,-2,3", "h = MatMul(x, w)\ny = Gemm<transB=1>(h, w)", 32, "int8", 0, 0},
		{"product and sum", "x:float[64,64] w:float[64,64]=1,-2,3", "h = MatMul(x, w)\ny = Add(h, w)", 32, "int8 axis 1", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := find(t, 21, some, c.values, c.nodes, int4(c.block))
			i := slices.IndexFunc(p.Tensors, func(t *actpairs.Tensor) bool { return t.Value.Name == "w" })
			w := p.Tensors[i]
			got := strings.TrimPrefix(describe(&actpairs.Plan{Tensors: []*actpairs.Tensor{w}}), "w ")
			if got != c.want || w.Block != c.size || c.size > 0 && w.Along != c.along {
				t.Errorf("got %s, blocks of %d along %d; want %s, %d along %d", got, w.Block, w.Along, c.want, c.size, c.along)
			}
			if p.Opset() != 21 {
				t.Errorf("opset %d", p.Opset())
			}
		})
	}
}

// Scales of blocks are 1 to 16 times that of their channel, and one block of each channel has 16. The codes lose less
// than with scales that reach the largest element of each block and are rounded up.
func TestExpansion(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name, values, node string
		channels, blocks   int
		at                 func(channel, block int) int // place of a scale
		first, step        func(channel, block int) int // elements of a block
	}{
		{"columns", "x:float[2,192] w:float[192,5]=1", "y = MatMul(x, w)", 5, 6,
			func(c, b int) int { return b*5 + c }, func(c, b int) int { return b*32*5 + c }, func(int, int) int { return 5 }},
		{"rows", "x:float[1,192,2,2] w:float[5,192,1,1]=1", "y = Conv(x, w)", 5, 6,
			func(c, b int) int { return c*6 + b }, func(c, b int) int { return c*192 + b*32 }, func(int, int) int { return 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			elements := make([]float32, 192*5)
			var raw []byte
			for i := range elements {
				elements[i] = float32(r.NormFloat64() * math.Exp(r.NormFloat64()/2))
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(elements[i]))
			}
			m := graphtext.Model(t, 21, c.values, c.node, "y")
			m.Graph.Initializer[0].RawData, m.Graph.Initializer[0].FloatData = raw, nil
			o := options(ranges(t, "x=-1,1 y=-1,1"))
			int4(32)(&o)
			p, err := actpairs.Find(modeltest.Graph(t, m), o)
			if err != nil {
				t.Fatal(err)
			}
			w := p.Tensors[slices.IndexFunc(p.Tensors, func(t *actpairs.Tensor) bool { return t.Value.Name == "w" })]
			raw = read(t, w.Stored.ScaleBytes(), 4*c.channels*c.blocks)
			scales := make([]float32, c.channels*c.blocks)
			dtype.Float32.Decode(scales, raw)
			params, err := w.Params()
			if err != nil {
				t.Fatal(err)
			}
			var lost, plain float64
			for ch := range c.channels {
				most := float32(0)
				for b := range c.blocks {
					s := scales[c.at(ch, b)]
					if n := s / params[ch].Scale; n != float32(math.Round(float64(n))) || n < 1 || n > 16 {
						t.Errorf("channel %d, block %d: %g times the scale of the channel", ch, b, n)
					}
					most = max(most, s)
				}
				if most != 16*params[ch].Scale {
					t.Errorf("channel %d: largest scale %g, that of the channel %g", ch, most, params[ch].Scale)
				}
				whole := float32(0)
				var amax [6]float32
				for b := range c.blocks {
					for i := range 32 {
						v := elements[c.first(ch, b)+i*c.step(ch, b)]
						amax[b] = max(amax[b], v, -v)
					}
					whole = max(whole, amax[b]/7/16)
				}
				for b := range c.blocks {
					up := float32(math.Ceil(float64(amax[b]/7/whole)-1e-6)) * whole
					for i := range 32 {
						v := elements[c.first(ch, b)+i*c.step(ch, b)]
						lost, plain = lost+loss(v, scales[c.at(ch, b)]), plain+loss(v, up)
					}
				}
			}
			if lost > 0.9*plain {
				t.Errorf("squared error %g, with scales that are rounded up %g", lost, plain)
			}
			filled, zeros := make([]float32, 7), make([]byte, 7)
			if err := w.Fill(filled, zeros, 3); err != nil || !slices.Equal(filled, scales[3:10]) {
				t.Errorf("scales from the fourth on: %v, %v; want %v", filled, err, scales[3:10])
			}
		})
	}
}

func loss(v, scale float32) float64 {
	q := min(max(math.RoundToEven(float64(v/scale)), -8), 7)
	return math.Pow(float64(v)-q*float64(scale), 2)
}
