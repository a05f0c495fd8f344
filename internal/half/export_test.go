package half

import "onnxquant/internal/graph"

// Estimate returns the estimated size of a value of the main graph.
func Estimate(x *graph.Graph, name string) (rms, gains float64) {
	z := estimate(typesOf(x))[x.Scope(x.File.Proto.Graph).Values[name]]
	return z.rms, z.gains
}
