package target

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// kernels has the opsets at which a runtime runs each operator of ai.onnx.
type kernels map[string][]span

// span is a range of opsets.
type span struct{ first, last int64 }

//go:embed kernels_ort.txt
var ortKernels string

//go:embed kernels_ort_next.txt
var ortNextKernels string // at opsets that only a newer version loads

// inORT has the kernels of ONNX Runtime on a CPU, from its registry of kernels: see
// test/oracle/kernels.py.
var inORT = sync.OnceValue(func() kernels {
	k, _ := parseKernels(ortKernels + ortNextKernels) // TestKernels reads it without an error
	return k
})

//go:embed bfloat16_ort.txt
var ortBFloat16 string

// bfloat16InORT has the operators that ONNX Runtime runs with bfloat16 on a CPU.
var bfloat16InORT = sync.OnceValue(func() kernels {
	k, _ := parseKernels(ortBFloat16)
	return k
})

// RunsBFloat16 reports whether the runtime has a bfloat16 kernel for an operator, such as "MatMul"
// or "com.microsoft.Attention". It is true if that is not known: for operators of ai.onnx that are
// missing in the table of kernels, and for runtimes without a table.
func (e *Engine) RunsBFloat16(op string) bool {
	if e.kernels == nil {
		return true
	}
	_, runs := bfloat16InORT()[op]
	return runs || e.kernels()[op] == nil && !strings.HasPrefix(op, contrib)
}

// contrib begins the names of ONNX Runtime's own operators.
const contrib = "com.microsoft."

// parseKernels reads a table. Each line has an operator and the opsets at which it runs, such as
// "Swish 24-24". An operator may have several lines.
func parseKernels(table string) (kernels, error) {
	k := kernels{}
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		spans := append([]span{}, k[fields[0]]...)
		for _, f := range fields[1:] {
			from, to, _ := strings.Cut(f, "-")
			first, err := strconv.ParseInt(from, 10, 64)
			last, err2 := strconv.ParseInt(to, 10, 64)
			if err != nil || err2 != nil {
				return nil, fmt.Errorf("operator %s: %q is not a range of opsets", fields[0], f)
			}
			spans = append(spans, span{first, last})
		}
		k[fields[0]] = spans
	}
	return k, nil
}

// Runs reports whether the runtime has a kernel for an operator of ai.onnx at an opset. It is true
// if that is not known: for operators missing in the table, and for runtimes without a table.
func (e *Engine) Runs(op string, opset int64) bool {
	if e.kernels == nil {
		return true
	}
	spans, known := e.kernels()[op]
	if !known {
		return true
	}
	for _, s := range spans {
		if opset >= s.first && opset <= s.last {
			return true
		}
	}
	return false
}

// oldestOpset is the first opset in tables of kernels.
const oldestOpset = 7

// Loses returns the first opset in from+1 … to at which the runtime no longer runs an operator of
// ai.onnx that it runs at opset from, or 0.
func (e *Engine) Loses(op string, from, to int64) int64 {
	from = max(from, oldestOpset)
	if !e.Runs(op, from) {
		return 0
	}
	for opset := from + 1; opset <= to; opset++ {
		if !e.Runs(op, opset) {
			return opset
		}
	}
	return 0
}
