package nvfp4

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
)

var inf = float32(math.Inf(1))

func TestE2M1(t *testing.T) {
	values := []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	for code, v := range values {
		if got := DecodeE2M1(byte(code)); got != v {
			t.Errorf("code %d is %v, want %v", code, got, v)
		}
		if got := DecodeE2M1(byte(code) | 8); got != -v || math.Signbit(float64(got)) != true {
			t.Errorf("code %d is %v, want %v", code|8, got, -v)
		}
	}
	for _, c := range []struct {
		x    float32
		want byte
	}{
		{0, 0}, {float32(math.Copysign(0, -1)), 0}, {-1e-30, 8}, {-math.SmallestNonzeroFloat32, 8}, {1e-30, 0},
		{0.25, 0}, {-0.25, 8}, {0.75, 2}, {1.25, 2}, {1.75, 4}, {2.5, 4}, {3.5, 6}, {5, 6}, {-5, 14},
		{math.Nextafter32(0.25, 1), 1}, {math.Nextafter32(5, 6), 7}, {math.Nextafter32(3.5, 0), 5},
		{6, 7}, {7, 7}, {1e30, 7}, {inf, 7}, {-inf, 15}, {float32(math.NaN()), 7}, {-float32(math.NaN()), 7},
	} {
		if got := EncodeE2M1(c.x); got != c.want {
			t.Errorf("%v has code %d, want %d", c.x, got, c.want)
		}
	}
}

func TestScaleByte(t *testing.T) {
	for code := 1; code < 0x7f; code++ {
		v := kernels.E4M3FN.Values[code]
		if got := ScaleByte(v); got != byte(code) {
			t.Errorf("%v has code %#x, want %#x", v, got, code)
		}
	}
	for _, v := range []float32{0, 1e-30, 0x1p-10, 0x1p-9} {
		if got := ScaleByte(v); got != 1 {
			t.Errorf("%v has code %#x, want 1", v, got)
		}
	}
	for _, v := range []float32{448, 464, 465, 1e30} {
		if got := ScaleByte(v); got != 0x7e {
			t.Errorf("%v has code %#x, want 0x7e", v, got)
		}
	}
}

func TestScaleBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for n := range 600 {
		scales, got := make([]float32, n), make([]byte, n)
		for i := range scales {
			scales[i] = float32(math.Exp2(r.Float64()*40 - 25))
		}
		if n > 0 {
			scales[r.IntN(n)] = []float32{0, 0x1p-9, 448, float32(math.Inf(1)), 1e-45}[n%5]
		}
		ScaleBytes(got, scales)
		for i, s := range scales {
			if want := ScaleByte(s); got[i] != want {
				t.Fatalf("scale %d of %d, %v, has code %#x, want %#x", i, n, s, got[i], want)
			}
		}
	}
}

func TestTensorScale(t *testing.T) {
	for _, c := range []struct{ amax, want float32 }{
		{0, 1}, {math.SmallestNonzeroFloat32, 1}, {2688, 1}, {1, 1 / float32(2688)}, {0x1p-130, 0x1p-130 / float32(2688)},
	} {
		if got, err := TensorScale(c.amax); got != c.want || err != nil {
			t.Errorf("magnitude %v: scale %v, %v, want %v", c.amax, got, err, c.want)
		}
	}
	for _, v := range []float32{inf, float32(math.NaN())} {
		if _, err := TensorScale(v); err == nil {
			t.Errorf("magnitude %v: no error", v)
		}
	}
}

// What is encoded comes back, as near as codes and scales allow.
func TestTensor(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 50 {
		rows, k, block := r.IntN(5), 1+r.IntN(70), 1+r.IntN(40)
		w := make([]float32, rows*k)
		for i := range w {
			w[i] = float32(r.NormFloat64())
			if r.IntN(4) == 0 {
				w[i] = 0
			}
		}
		e, err := Encode(w, k, block)
		if err != nil {
			t.Fatal(err)
		}
		y, err := e.Decode()
		if err != nil {
			t.Fatal(err)
		}
		n := (k + block - 1) / block
		for i, v := range w {
			s := float64(kernels.E4M3FN.Values[e.Scales[i/k*n+i%k/block]] * e.TensorScale)
			// Steps are 2 at most, and a block's scale may be too small by half a step of 2^-3.
			if d := math.Abs(float64(y[i]) - float64(v)); d > 1.4*s {
				t.Fatalf("%v became %v, with a scale of %v", v, y[i], s)
			}
			if v == 0 && y[i] != 0 {
				t.Fatalf("0 became %v", y[i])
			}
		}
	}
}

func TestTensorErrors(t *testing.T) {
	for name, f := range map[string]func() error{
		"NaN":       func() error { _, err := Encode([]float32{1, float32(math.NaN())}, 2, 2); return err },
		"infinity":  func() error { _, err := Encode([]float32{-inf, 1}, 2, 2); return err },
		"rows":      func() error { _, err := Encode(make([]float32, 5), 2, 2); return err },
		"no row":    func() error { _, err := Encode(nil, 0, 2); return err },
		"block":     func() error { _, err := Encode(make([]float32, 4), 2, 0); return err },
		"no scales": func() error { _, err := (&Tensor{Rows: 1, K: 2, Block: 2, Packed: []byte{0}}).Decode(); return err },
		"no codes":  func() error { _, err := (&Tensor{Rows: 1, K: 2, Block: 2, Scales: []byte{0}}).Decode(); return err },
		"overflow":  func() error { _, err := (&Tensor{Rows: 1 << 62, K: 4, Block: 1}).Decode(); return err },
		"empty":     func() error { _, err := (&Tensor{}).Decode(); return err },
	} {
		if f() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Columns have the codes of rows, and of the tensor encoded at once.
func TestCodecIsEncode(t *testing.T) {
	const k, n, block = 40, 6, 16
	r := rand.New(rand.NewPCG(5, 5))
	rows, columns := make([]float32, n*k), make([]float32, n*k)
	for i := range rows {
		rows[i] = float32(r.ExpFloat64() - 1)
		columns[i%k*n+i/k] = rows[i]
	}
	want, err := Encode(rows, k, block)
	if err != nil {
		t.Fatal(err)
	}
	c := Codec{TensorScale: want.TensorScale, Type: dtype.Float32}
	for b := range 3 {
		part := columns[b*block*n : min((b+1)*block, k)*n]
		amax, scale := make([]float32, n), make([]float32, n)
		c.ObserveColumns(nil, amax, part)
		c.Scales(scale, nil, nil, amax)
		q := make([]byte, len(part))
		c.EncodeColumns(q, part, scale, nil)
		for i, code := range q {
			at := i%n*k + b*block + i/n
			if w := want.Packed[at/2] >> (at % 2 * 4) & 15; code != w {
				t.Fatalf("element %d has code %d, want %d", at, code, w)
			}
		}
		for i, s := range scale {
			if got := ScaleByte(s); got != want.Scales[i*3+b] {
				t.Fatalf("block %d of row %d has the scale %#x, want %#x", b, i, got, want.Scales[i*3+b])
			}
		}
	}
}

func TestZeroTensor(t *testing.T) {
	e, err := Encode(make([]float32, 32), 32, 16)
	if err != nil {
		t.Fatal(err)
	}
	if e.TensorScale != 1 || !bytes.Equal(e.Scales, []byte{0x38, 0x38}) || !bytes.Equal(e.Packed, make([]byte, 16)) {
		t.Errorf("zeros became %+v", e)
	}
}

// Even the largest weights stand for numbers.
func TestHugeIsFinite(t *testing.T) {
	for _, c := range []struct {
		dtype dtype.DType
		amax  float32
		ulp   uint32
	}{{dtype.Float32, math.MaxFloat32, 1}, {dtype.Float16, 65504, 1 << 13}, {dtype.BFloat16, 0x1.fep127, 1 << 16}} {
		for i := range uint32(1000) {
			v := math.Float32frombits(math.Float32bits(c.amax) - i*c.ulp)
			s, err := TensorScale(v)
			if err != nil {
				t.Fatal(err)
			}
			codec := Codec{TensorScale: s, Type: c.dtype}
			x, scale, q := []float32{v, -v, v / 3, 0}, []float32{v}, make([]byte, 4)
			codec.Scales(scale, nil, nil, scale)
			codec.EncodeBlocks(q, x, scale, nil, 4, 4)
			codec.DecodeBlocks(x, q, scale, nil, 4, 4)
			for _, y := range x {
				if !kernels.IsFinite(y) {
					t.Fatalf("%s: weights up to %v became %v", c.dtype, v, x)
				}
			}
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []Codec{
		{}, {TensorScale: inf}, {TensorScale: -1}, {TensorScale: float32(math.NaN())},
		{TensorScale: 1, Type: dtype.Float64}, {TensorScale: 1, Type: dtype.Int8},
	} {
		if c.Validate() == nil {
			t.Errorf("%+v: no error", c)
		}
	}
	if err := (Codec{TensorScale: 1}).Validate(); err != nil {
		t.Error(err)
	}
}

// A weight [K, N] has the codes and scales of the transposed one, transposed.
func TestEncodeColumns(t *testing.T) {
	for _, size := range [][3]int{{8, 3, 4}, {16, 5, 16}, {19, 4, 8}, {5, 2, 16}, {6, 1, 1}} {
		k, n, block := size[0], size[1], size[2]
		w, rows := make([]float32, k*n), make([]float32, k*n)
		for i := range k {
			for j := range n {
				w[i*n+j] = float32(math.Sin(float64(3*i + 7*j)))
				rows[j*k+i] = w[i*n+j]
			}
		}
		got, err := EncodeColumns(w, k, n, block)
		if err != nil {
			t.Fatal(err)
		}
		want, err := Encode(rows, k, block)
		if err != nil {
			t.Fatal(err)
		}
		x, err := got.Decode()
		if err != nil {
			t.Fatal(err)
		}
		y, err := want.Decode()
		if err != nil {
			t.Fatal(err)
		}
		per := (k-1)/block + 1
		for i := range k {
			for j := range n {
				if got.Scales[i/block*n+j] != want.Scales[j*per+i/block] || x[i*n+j] != y[j*k+i] {
					t.Fatalf("%v: element [%d, %d] is %v, in rows %v", size, i, j, x[i*n+j], y[j*k+i])
				}
			}
		}
	}
	if _, err := EncodeColumns(make([]float32, 12), 4, 4, 2); err == nil {
		t.Error("12 elements are no weight of 4 rows of 4")
	}
}
