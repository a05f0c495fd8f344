package bench_test

import (
	"encoding/json"
	"fmt"

	"onnxquant/onnxq/bench"
)

// A program reads what onnxquant bench --json has printed, and judges it.
func ExampleReport() {
	printed := `{"settled": true, "models": [
		{"path": "in.onnx", "p50_ms": 4.1, "ratio": 1, "profile": {"run_ms": 4.3, "dequantize": {"name": "DequantizeLinear"}}},
		{"path": "out.onnx", "p50_ms": 2.8, "ratio": 0.68, "profile": {"run_ms": 3.0, "dequantize": {"name": "DequantizeLinear", "ms": 0.3, "share": 0.1}}}]}`
	var r bench.Report
	if err := json.Unmarshal([]byte(printed), &r); err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range r.Models[1:] {
		fmt.Printf("%s takes %.2f of the time, %.0f %% of it in DequantizeLinear\n", m.Path, m.Ratio, 100*m.Profile.Dequantize.Share)
	}
	// Output: out.onnx takes 0.68 of the time, 10 % of it in DequantizeLinear
}
