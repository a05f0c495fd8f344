// Package execute runs ONNX models and compares what comes out.
//
// There are two [Runner]s. Package evaluate is pure Go: it walks the graph and
// has the arithmetic done by gorgonnx, the backend of onnx-go. Package ort asks
// ONNX Runtime, through a helper program, because the binding to its shared
// library needs cgo.
//
// [Inputs] makes inputs for a model, from a seed or out of files, and [Compare]
// measures how far the outputs of two runs are from each other.
package execute
