// Package execute runs ONNX models and compares their outputs.
//
// Package evaluate has [Runner]s in pure Go, package ort one that runs ONNX Runtime in a process
// of its own.
//
// [Inputs] makes random inputs from a seed or reads them from files. [Compare]
// measures the difference between the outputs of two runs.
package execute
