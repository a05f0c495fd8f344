package kernels

import "math"

// Add sets y to a + b, element by element. y may be a or b, here and below.
func Add(y, a, b []float32) {
	if len(y) > 0 {
		add(y, a[:len(y)], b[:len(y)])
	}
}

// Subtract sets y to a - b.
func Subtract(y, a, b []float32) {
	if len(y) > 0 {
		subtract(y, a[:len(y)], b[:len(y)])
	}
}

// Multiply sets y to a · b.
func Multiply(y, a, b []float32) {
	if len(y) > 0 {
		multiply(y, a[:len(y)], b[:len(y)])
	}
}

// Divide sets y to a / b.
func Divide(y, a, b []float32) {
	if len(y) > 0 {
		divide(y, a[:len(y)], b[:len(y)])
	}
}

// Clip sets y to x, but for numbers below least or above most. NaN stays.
func Clip(y, x []float32, least, most float32) {
	if len(y) > 0 {
		clip(y, x[:len(y)], least, most)
	}
}

func addGo(y, a, b []float32) {
	a, b = a[:len(y)], b[:len(y)]
	for i := range y {
		y[i] = a[i] + b[i]
	}
}

func subtractGo(y, a, b []float32) {
	a, b = a[:len(y)], b[:len(y)]
	for i := range y {
		y[i] = a[i] - b[i]
	}
}

func multiplyGo(y, a, b []float32) {
	a, b = a[:len(y)], b[:len(y)]
	for i := range y {
		y[i] = a[i] * b[i]
	}
}

func divideGo(y, a, b []float32) {
	a, b = a[:len(y)], b[:len(y)]
	for i := range y {
		y[i] = a[i] / b[i]
	}
}

func clipGo(y, x []float32, least, most float32) {
	y = y[:len(x)]
	for i, v := range x {
		if least > v {
			v = least
		}
		if most < v {
			v = most
		}
		y[i] = v
	}
}

// The constants of Exp: x = n·ln 2 + r, with ln 2 in two parts, and a polynomial for the exponential of r.
const (
	expMost  = 89   // its exponential is infinite
	expLeast = -104 // its exponential is 0
	log2e    = math.Log2E
	ln2Most  = 0.693359375
	ln2Rest  = -2.12194440e-4
	toWhole  = 3 << 22 // a float32 of this size has no fraction
)

var expTerms = [...]float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1}

// Exp sets y to the exponentials of x, within 2 units in the last place. y may be x.
func Exp(y, x []float32) {
	if len(x) > 0 {
		exp(y[:len(x)], x)
	}
}

func expGo(y, x []float32) {
	y = y[:len(x)]
	for i, v := range x {
		if expMost < v {
			v = expMost
		}
		if expLeast > v {
			v = expLeast
		}
		shifted := float32(v*log2e) + toWhole
		whole := shifted - toWhole
		r := v - float32(whole*ln2Most)
		r -= float32(whole * ln2Rest)
		sum := expTerms[0]
		for _, term := range expTerms[1:] {
			sum = float32(sum*r) + term
		}
		sum = float32(float32(sum*r)*r) + r + 1
		// 2^n is computed in two steps: it may be beyond float32 where the result is not.
		n := int32(math.Float32bits(shifted)) - int32(math.Float32bits(toWhole))
		half := n >> 1
		y[i] = float32(sum*power(half)) * power(n-half)
	}
}

func power(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

// Rational is an odd function: x·P(x²)/Q(x²) up to a limit, beyond which it is 1 or -1. The
// coefficients of the highest powers come first.
type Rational struct {
	limit float32
	p, q  [6]float32
}

// Tanh and Erf have relative errors of less than 5e-7.
var (
	Tanh = &Rational{9,
		[6]float32{0, 1.3355582417773348e-08, 2.0609828425222076e-05, 0.003495636861771345, 0.13381068408489227, 1},
		[6]float32{0, 7.776960160299495e-07, 0.0003285712155047804, 0.025877170264720917, 0.46714383363723755, 1}}
	Erf = &Rational{3.92,
		[6]float32{2.0503114228631603e-06, 0.0002848669537343085, 0.003764697816222906, 0.052745867520570755, 0.19038432836532593, 1.1283791065216064},
		[6]float32{3.8093239709269255e-05, 0.0011623227037489414, 0.01496735867112875, 0.11410003155469894, 0.5020564794540405, 1}}
)

// Apply sets y to the function of x. y may be x.
func (f *Rational) Apply(y, x []float32) {
	if len(x) > 0 {
		rational(y[:len(x)], x, f)
	}
}

func rationalGo(y, x []float32, f *Rational) {
	y = y[:len(x)]
	for i, v := range x {
		if f.limit < v {
			v = f.limit
		}
		if -f.limit > v {
			v = -f.limit
		}
		square := v * v
		p, q := f.p[0], f.q[0]
		for k := 1; k < len(f.p); k++ {
			p = float32(p*square) + f.p[k]
			q = float32(q*square) + f.q[k]
		}
		v = float32(v*p) / q
		if 1 < v {
			v = 1
		}
		if -1 > v {
			v = -1
		}
		y[i] = v
	}
}

// dotLanes is the number of sums among which Dot divides products.
const dotLanes = 32

// Dot returns the sum of the products of two vectors. Product i belongs to sum i % 32; these are added in
// halves.
func Dot(x, y []float32) float32 {
	if len(x) == 0 {
		return 0
	}
	return dot(x, y[:len(x)])
}

func dotGo(x, y []float32) float32 {
	var sums [dotLanes]float32
	y = y[:len(x)]
	for ; len(x) >= dotLanes; x, y = x[dotLanes:], y[dotLanes:] {
		a, b := (*[dotLanes]float32)(x), (*[dotLanes]float32)(y)
		for i, v := range a {
			sums[i] += float32(v * b[i])
		}
	}
	return dotRest(&sums, x, y)
}

// dotRest adds the last products to the sums, and these up.
func dotRest(sums *[dotLanes]float32, x, y []float32) float32 {
	for i, v := range x {
		sums[i] += float32(v * y[i])
	}
	for n := dotLanes / 2; n > 0; n /= 2 {
		for i := range n {
			sums[i] += sums[i+n]
		}
	}
	return sums[0]
}
