package quality_test

import (
	"fmt"
	"log"

	"onnxquant/calib"
	"onnxquant/quality"
)

func ExampleMeasure() {
	s := quality.Measure([]float32{3, -4}, []float32{3, -3}, 0.5)
	fmt.Println(s.MSE, s.MAE, s.MaxError, s.Outliers)
	fmt.Printf("%.1f dB\n", s.SQNR)
	// Output:
	// 0.5 0.5 1 0.5
	// 14.0 dB
}

func ExampleSums() {
	var s quality.Sums
	s.Add([]float32{1, 2}, []float32{1, 3})
	s.Add([]float32{3}, []float32{3})
	fmt.Println(s.Stats().N, s.Stats().MAE)
	// Output: 3 0.3333333333333333
}

func ExampleByChannel() {
	rows, err := quality.ByChannel([]float32{1, 2, 3, 4}, []float32{1, 2, 3, 5}, 2, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rows[0].MSE, rows[1].MSE)
	// Output: 0 0.5
}

func ExampleByGroup() {
	groups, err := quality.ByGroup([]float32{1, 2, 3}, []float32{1, 2, 5}, 2, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(groups), groups[1].MaxError)
	// Output: 2 2
}

func ExampleTheoreticalSQNR() {
	fmt.Printf("%.2f dB\n", quality.TheoreticalSQNR(8))
	// Output: 49.92 dB
}

func ExampleTheoreticalMaxError() {
	p := calib.Scheme{Bits: 4, Symmetric: true}.Params(calib.Range{Min: -7, Max: 7})
	fmt.Println(quality.TheoreticalMaxError(p))
	// Output: 0.5
}

func ExampleWithinBounds() {
	p := calib.Scheme{Bits: 4, Symmetric: true}.Params(calib.Range{Min: -7, Max: 7})
	fmt.Println(quality.WithinBounds([]float32{1.4}, []float32{1}, p), quality.WithinBounds([]float32{1.4}, []float32{2}, p))
	// Output: true false
}

func ExampleScaleSensitivity() {
	v, err := quality.ScaleSensitivity(quality.Values([]float32{-7, 0.25, 7}), calib.Scheme{Bits: 4, Symmetric: true}, 0.5)
	fmt.Println(v, err)
	// Output: 16 <nil>
}

func ExampleOutlierImpact() {
	x := []float32{0.1, -0.25, 0.3, -0.4, 0.5, 10}
	v, err := quality.OutlierImpact(quality.Values(x), calib.Scheme{Bits: 4, Symmetric: true}, 80)
	fmt.Printf("%.0f times, %v\n", v, err)
	// Output: 184 times, <nil>
}

func ExampleCompareBits() {
	x := []float32{-1, -0.5, 0.3, 0.7}
	found, err := quality.CompareBits(x, 1, quality.Setting{Scheme: calib.Scheme{Symmetric: true}, Granularity: calib.PerTensor})
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range found {
		fmt.Printf("%v: %.1f dB\n", c.Setting, c.Stats.SQNR)
	}
	// Output:
	// 4 bits symmetric per tensor: 25.2 dB
	// 8 bits symmetric per tensor: 50.4 dB
}

func ExampleCompareGranularities() {
	x := []float32{100, -50, 30, 0.1, -0.05, 0.03}
	found, err := quality.CompareGranularities(x, 2, calib.Scheme{Bits: 8, Symmetric: true}, 2)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range found {
		fmt.Printf("%v: %.2g\n", c.Setting, c.Stats.MAE)
	}
	// Output:
	// 8 bits symmetric per tensor: 0.11
	// 8 bits symmetric per channel: 0.079
	// 8 bits symmetric per group of 2: 0.082
}

func ExampleSuite() {
	results, err := quality.Suite(quality.SuiteWeights(1))
	if err != nil {
		log.Fatal(err)
	}
	best := quality.BestBySQNR(results)
	fmt.Printf("%d results; %s, %v\n", len(results), best.Weights, best.Setting)
	// Output: 48 results; uniform, 8 bits symmetric per group of 32
}

func ExampleAccuracyRetention() {
	percent, err := quality.AccuracyRetention(0.8, 0.76)
	fmt.Printf("%.1f %v\n", percent, err)
	// Output: 95.0 <nil>
}

func ExampleCompare() {
	x := []float32{-1, -0.5, 0.3, 0.7}
	found, err := quality.Compare(x, 1, quality.Setting{Scheme: calib.Scheme{Bits: 4}, Granularity: calib.PerTensor})
	if err != nil {
		log.Fatal(err)
	}
	c := found[0]
	fmt.Printf("%v: off by %.3f at most, theory has %.3f: %v; %.2f times smaller\n",
		c.Setting, c.Stats.MaxError, c.MaxError, c.WithinBounds, c.Compression)
	// Output: 4 bits asymmetric per tensor: off by 0.047 at most, theory has 0.057: true; 2.46 times smaller
}

func ExampleByEfficiency() {
	results, err := quality.Suite(quality.SuiteWeights(1)[:1])
	if err != nil {
		log.Fatal(err)
	}
	best := quality.ByEfficiency(results)[0]
	fmt.Printf("%v: %.2f dB per bit\n", best.Setting, best.Efficiency())
	fmt.Println(quality.BestByMSE(results).Setting)
	// Output:
	// 8 bits asymmetric per channel: 5.36 dB per bit
	// 8 bits asymmetric per group of 32
}

func ExampleSuiteWeights() {
	for _, w := range quality.SuiteWeights(1) {
		fmt.Println(w.Name, w.Channels, len(w.Values))
	}
	// Output:
	// gaussian 16 4096
	// uniform 16 4096
	// multi-channel 16 4096
	// outliers 16 4096
}

func ExampleValues() {
	for v, times := range quality.Values([]float32{0.5, -2}) {
		fmt.Println(v, times)
	}
	// Output:
	// 0.5 1
	// -2 1
}
