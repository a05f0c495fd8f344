package target

import "testing"

// The table is read without an error. Cast and Mul cost what float does, and a DequantizeLinear costs more.
func TestCosts(t *testing.T) {
	c, err := parseCosts(ortCosts)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.products) < 100 || len(c.forms) < 10 {
		t.Fatalf("%d products, %d operators", len(c.products), len(c.forms))
	}
	slow := 0
	for name, ratio := range c.folded {
		if ratio > 1.1 { // the measurement's noise is below 10 %
			t.Errorf("%s: folded takes %.2f times as long as float", name, ratio)
		}
		if c.forms[name] > 1.1 {
			slow++
		}
	}
	if slow < len(c.forms)/2 {
		t.Errorf("%d of %d operators are slow behind a DequantizeLinear", slow, len(c.forms))
	}
	for _, wrong := range []string{"MatMulNBits 4 32", "Conv x y z", "Conv 3x3 1"} {
		if _, err := parseCosts(wrong); err == nil {
			t.Errorf("%q: no error", wrong)
		}
	}
}

func TestDecoding(t *testing.T) {
	for op, want := range map[string]float64{"Gather": 10, "Conv": 1.3, "MatMul": 1.5, "Gemm": 1.5, "LSTM": 1.3} {
		if least, most, ok := Decoding(op); !ok || least > most || most < want {
			t.Errorf("%s: %v to %v, %v", op, least, most, ok)
		}
	}
	if _, _, ok := Decoding("Add"); ok {
		t.Error("Add was not measured")
	}
}

func TestFast(t *testing.T) {
	for _, c := range []struct {
		p    Nibbles
		want bool
	}{
		{Nibbles{Bits: 4, Block: 128, Level: 4, K: 1024, N: 4096}, true},
		{Nibbles{Bits: 8, Block: 32, Level: 4, K: 2048, N: 2048, Rows: 4000}, true},
		{Nibbles{Bits: 4, Block: 32, Level: 4, K: 64, N: 64}, false},
		{Nibbles{Bits: 4, Block: 128, Level: 4, K: 128, N: 2048, Rows: 64}, false}, // 0.99 to 1.09
		{Nibbles{Bits: 4, Block: 128, Level: 4, K: 128, N: 2048, Rows: 1}, true},
		{Nibbles{Bits: 4, Block: 32, Level: 4, K: 64, N: 512}, false}, // fast for 1 row alone
		{Nibbles{Bits: 4, Block: 32, Level: 4, K: 64, N: 512, Rows: 1}, true},
		{Nibbles{Bits: 4, Block: 32, Level: 4, K: 16, N: 4096, Rows: 1}, false}, // smaller than measured
		{Nibbles{Bits: 4, Block: 7, Level: 4, K: 1024, N: 4096}, false},
		{Nibbles{Bits: 2, Block: 32, Level: 4, K: 1024, N: 1024, Rows: 128}, false},
	} {
		if got := c.p.Fast(); got != c.want {
			t.Errorf("%+v: %t", c.p, got)
		}
	}
}
