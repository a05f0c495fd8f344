// Package execute runs ONNX models and compares their outputs.
//
// There are two [Runner]s. Package evaluate is pure Go: it walks the graph, and
// gorgonnx, the backend of onnx-go, computes. Package ort runs ONNX Runtime in a
// process of its own.
//
// [Inputs] makes random inputs from a seed or reads them from files. [Compare]
// measures the difference between the outputs of two runs.
package execute
