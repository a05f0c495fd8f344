package actpairs_test

import (
	"strings"
	"testing"

	"onnxquant/internal/actpairs"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
)

// What is inside of a written-out normalization, Gelu or HardSwish stays in float: not what enters it, not its result, and nothing that
// only looks like it.
func TestInner(t *testing.T) {
	const values = "x:float[2,4] z:float[2,4] g:float[4]=1,2 b:float[4]=1,2 w:float[4,4]=1,2 zero:float=0.0 six:float=6.0 sixth:float=0.16666667 e:float=0.00001 two:float=2.0 half:float=0.5 minus:float=-0.5 one:float=1.0 c:float=0.044715 three:float=3.0 r:float=1.4142 s:int64[2]=2,1 m:int64[1]=-1"
	const mean, variance = `m1 = ReduceMean<axes=[-1]>(x); d = Sub(x, m1); `, `q = Pow(d, two); v = ReduceMean<axes=[-1]>(q); a = Add(v, e); o = Sqrt(a); `
	for _, c := range []struct{ name, nodes, want string }{
		{"LayerNormalization", mean + variance + `n = Div(d, o); k = Mul(n, g); y = Add(k, b)`, "m1 d q v a o n k"},
		{"without a scale", mean + variance + `y = Div(d, o)`, "m1 d q v a o"},
		{"a product as the square, and a power as the root", mean + `q = Mul(d, d); v = ReduceMean<axes=[-1]>(q); a = Add(v, e); o = Pow(a, minus); n = Mul(d, o); y = Mul(n, g)`, "m1 d q v a o n"},
		{"RMSNormalization", `q = Mul(x, x); v = ReduceMean<axes=[-1]>(q); a = Add(v, e); o = Sqrt(a); i = Reciprocal(o); n = Mul(x, i); y = Mul(n, g)`, "q v a o i n"},
		{"the mean of squares without the square of the mean", `m1 = ReduceMean<axes=[-1]>(x); p = Mul(m1, m1); q = Mul(x, x); v = ReduceMean<axes=[-1]>(q); d = Sub(v, p); a = Add(d, e); o = Sqrt(a); i = Reciprocal(o); f = Mul(i, g); k = Sub(x, m1); n = Mul(k, f); y = Add(n, b)`,
			"m1 p q v d a o i f k n"},
		{"scale and bias of the mean apart", mean + variance + `i = Reciprocal(o); f = Mul(i, g); n = Mul(x, f); p = Mul(m1, f); k = Sub(b, p); y = Add(n, k)`, "m1 d q v a o i f n p k"},
		{"a residual behind it", mean + variance + `n = Div(d, o); k = Mul(n, g); l = Add(k, b); y = Add(l, x)`, "m1 d q v a o n k"},
		{"a product reads the difference, too", mean + variance + `n = Div(d, o); h = MatMul(d, w); y = Add(n, h)`, "m1 q v a o"},
		{"a magnitude", `q = Mul(x, x); p = Mul(z, z); a = Add(q, p); o = Sqrt(a); y = MatMul(o, w)`, "q p a"},
		{"a root of no squares", `q = Mul(x, z); o = Sqrt(q); y = Div(x, o)`, ""},
		{"Gelu", `n = Div(x, r); q = Erf(n); a = Add(q, one); k = Mul(x, a); y = Mul(k, half)`, "n q a k"},
		{"Gelu, half first", `h = Mul(x, half); n = Div(x, r); q = Erf(n); a = Add(q, one); y = Mul(h, a)`, "h n q a"},
		{"Gelu of Tanh", `p = Pow(x, three); q = Mul(p, c); v = Add(x, q); n = Mul(v, half); o = Tanh(n); a = Add(o, one); k = Mul(a, half); y = Mul(x, k)`, "p q v n o a k"},
		{"HardSwish", `a = Add(x, three); q = Clip(a, zero, six); k = Mul(x, q); y = Div(k, six)`, "a q k"},
		{"HardSwish, divided first, and a product", `a = Add(three, x); q = Clip(a, zero, six); k = Div(q, six); h = Mul(k, x); y = MatMul(h, w)`, "a q k"},
		{"HardSwish that is scaled and added", `a = Add(x, three); q = Clip(a, zero, six); k = Mul(q, x); h = Div(k, six); n = Mul(h, two); y = Add(n, x)`, "a q k"},
		{"a HardSwish by a factor of 1 / 6", `a = Add(x, three); q = Clip(a, zero, six); k = Mul(q, sixth); y = Mul(k, x)`, "a q k"},
		{"another sum", `a = Add(x, two); q = Clip(a, zero, six); k = Mul(x, q); y = Div(k, six)`, ""},
		{"another bound", `a = Add(x, three); q = Clip(a, one, six); k = Mul(x, q); y = Div(k, six)`, ""},
		{"no upper bound", `a = Add(x, three); q = Clip(a, zero); k = Mul(x, q); y = Div(k, six)`, ""},
		{"another divisor", `a = Add(x, three); q = Clip(a, zero, six); k = Mul(x, q); y = Div(k, three)`, ""},
		{"no divisor", `a = Add(x, three); q = Clip(a, zero, six); y = Mul(x, q)`, ""},
		{"a hard gate of something else", `a = Add(x, three); q = Clip(a, zero, six); k = Div(q, six); y = Mul(k, z)`, ""},
		{"a Clip that two read", `a = Add(x, three); q = Clip(a, zero, six); k = Mul(x, q); h = Div(k, six); y = Add(h, q)`, ""},
		{"a gate", `o = Tanh(z); a = Add(o, one); y = Mul(x, a)`, ""},
		{"a product without factors", `q = Mul("", ""); o = Sqrt(q); y = Div(x, o)`, ""},
		{"a square of nothing", `q = Pow("", two); o = Sqrt(q); y = Div(x, o)`, ""},
		{"squares of nothing, and others", `q = Pow("", two); p = Mul(x, x); a = Add(p, q); o = Sqrt(a); y = Div(x, o)`, "p a o"},
		{"a norm of nothing", `o = ReduceL2(""); y = Div(x, o)`, ""},
		{"an LSTM's output", `o = Tanh(x); y = Mul(o, z)`, ""},
	} {
		x := modeltest.Graph(t, graphtext.Model(t, 13, values, strings.ReplaceAll(c.nodes, "; ", "\n"), "y"))
		var names []string
		for _, v := range actpairs.Inner(x) {
			names = append(names, v.Name)
		}
		want := map[string]bool{}
		for name := range strings.FieldsSeq(c.want) {
			want[name] = true
		}
		for _, name := range names {
			if !want[name] {
				t.Errorf("%s: %s", c.name, name)
			}
			delete(want, name)
		}
		if len(want) > 0 {
			t.Errorf("%s: not %v", c.name, want)
		}
	}
}

// With FloatProducts, codes go into products, and on from convolutions alone.
func TestFloatProducts(t *testing.T) {
	const values = "x:float[1,4,2,2] w:float[4,4,1,1]=1,-2,3 u:float[2,2]=1,-2 b:float[2]=1 i:int64[2] t:float[4,4]=1 v:float[4,4]=1,-2 r:float[2,2] q:float[2,2]=1,-3"
	for _, c := range []struct{ name, nodes, want string }{
		{"a product and a sum", `h = MatMul(x, u); k = Add(h, b); y = Add(k, k)`, "x u"},
		{"a second product", `h = MatMul(x, u); k = Add(h, b); l = Sigmoid(k); y = MatMul(l, u)`, "x u l"},
		{"two readers", `h = Sigmoid(x); k = MatMul(h, u); y = Add(k, h)`, "h u"},
		{"behind a convolution", `h = Conv(x, w); k = Sigmoid(h); l = Mul(h, k); m = MatMul(l, u); y = Sigmoid(m)`, "x h w k l u"},
		{"behind its Relu", `h = Conv(x, w); k = Relu(h); l = Add(k, k); y = Sigmoid(l)`, "x w k l y"},
		{"a sum of products", `h = MatMul(r, u); k = MatMul(r, q); l = Add(h, k); y = Add(l, b)`, "r q"},
		{"and their first one", `h = Sigmoid(r); k = MatMul(h, u); l = Add(k, h); y = Add(l, b)`, "h u"},
		{"a table", `h = Gather(t, i); k = Sigmoid(h); y = Gemm(k, v)`, "t h k v"},
	} {
		x := modeltest.Graph(t, graphtext.Model(t, 13, values, strings.ReplaceAll(c.nodes, "; ", "\n"), "y"))
		o := options(ranges(t, "x=-1,1 r=-1,1 h=-1,1 k=0,1 l=0,1 m=0,1 y=0,1"))
		o.FloatProducts = true
		p, err := actpairs.Find(x, o)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var names []string
		for _, t := range p.Tensors {
			names = append(names, t.Value.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
}
