package calib_test

import (
	"fmt"
	"log"

	"onnxquant/calib"
)

func ExampleScheme_Params() {
	p := calib.Scheme{Bits: 8}.Params(calib.Range{Min: -1, Max: 3})
	fmt.Println(p.ZeroPoint, p.Quantize(-1), p.Quantize(0), p.Quantize(3))
	// Output: 64 0 64 255
}

func ExampleParams_FakeQuantize() {
	x := []float32{-1, 0.4, 0.6, 3}
	p := calib.Scheme{Bits: 3, Symmetric: true}.Params(calib.Range{Min: -3, Max: 3})
	p.FakeQuantize(x, x)
	fmt.Println(x)
	// Output: [-1 0 1 3]
}

func ExampleMinMax() {
	var o calib.MinMax
	o.Observe([]float32{1, 2})
	o.Observe([]float32{-3})
	fmt.Println(o.Range())
	// Output: {-3 2} <nil>
}

func ExampleNewMovingAverage() {
	o, err := calib.NewMovingAverage(0.5)
	if err != nil {
		log.Fatal(err)
	}
	for _, batch := range [][]float32{{-1, 1}, {-3, 2}} {
		o.Observe(batch)
		o.EndBatch()
	}
	fmt.Println(o.Range())
	// Output: {-2 1.5} <nil>
}

func ExampleNewPercentile() {
	o, err := calib.NewPercentile(90)
	if err != nil {
		log.Fatal(err)
	}
	o.Observe([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 1000, -1000})
	fmt.Println(o.Range())
	// Output: {1 9} <nil>
}

func ExampleHistogram() {
	h, err := calib.NewHistogram(12)
	if err != nil {
		log.Fatal(err)
	}
	for i := range 100000 {
		h.Observe([]float32{float32(i)})
	}
	r, _ := h.Percentile(99)
	fmt.Printf("%.0f to %.0f, give or take 1/8192\n", r.Min, r.Max)
	// Output: 999 to 99000, give or take 1/8192
}

func ExampleHistogram_MSE() {
	h, err := calib.NewHistogram(12)
	if err != nil {
		log.Fatal(err)
	}
	h.Observe([]float32{-7, -3, -1, 0, 1, 2, 5, 7})
	fmt.Println(h.MSE(calib.Scheme{Bits: 4, Symmetric: true}))
	// Output: {-7 7} <nil>
}

func ExampleHistogram_Entropy() {
	h, err := calib.NewHistogram(12)
	if err != nil {
		log.Fatal(err)
	}
	for i := range 1000 {
		h.Observe([]float32{float32(i%200-100) / 100})
	}
	h.Observe([]float32{50})
	r, _ := h.Entropy(calib.Scheme{Bits: 8, Symmetric: true})
	fmt.Println(r.Max < 10)
	// Output: true
}

func ExampleMethod_Observer() {
	m, err := calib.ParseMethod("percentile:99.9")
	if err != nil {
		log.Fatal(err)
	}
	o, err := m.Observer(calib.Scheme{Bits: 8}, 12)
	if err != nil {
		log.Fatal(err)
	}
	o.Observe([]float32{0, 1, 2})
	fmt.Println(o.Range())
	// Output: {0 2} <nil>
}

func ExamplePercentileIndex() {
	fmt.Println(calib.PercentileIndex(99, 1000), calib.PercentileIndex(100, 1000))
	// Output: 990 999
}

func ExampleParseMethod() {
	m, err := calib.ParseMethod("percentile:99.9")
	fmt.Println(m, err)
	// Output: percentile:99.9 <nil>
}
