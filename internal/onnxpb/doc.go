// Package onnxpb has the messages of the ONNX interchange format, in which a model is written.
//
// They are generated from onnx.proto. Contents of tensors are not in them: see package modelfile.
package onnxpb
