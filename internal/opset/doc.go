// Package opset raises the ai.onnx operator set that a model imports.
//
// DequantizeLinear takes blocked 4-bit weights from opset 21, 2-bit ones from
// 25; models come at any opset from 7. An opset is a set of operator
// definitions, each in force from the version it was published in until the
// next one, so a model means the same at a higher opset only where each of its
// operators kept its definition, or is rewritten for the new one.
//
// # The table
//
// operators (table.go) lists every operator of ai.onnx with the versions at
// which its definition changed. A change is either compatible (a type, an
// optional input, or an attribute whose default is the old behavior was added;
// a description was corrected) or has an adapter, which rewrites one node of
// the old definition into nodes of the new one. An adapter may have to refuse
// a node; its comment says which and why. guests (guests.go) lists operators
// that runtimes take in the same domain though the opset does not define them.
// What neither knows is refused.
//
// # Raising
//
// Raise works its way up one opset at a time. At each it visits the nodes of
// the graph, of every subgraph, of the model's functions and of its training
// graphs, and runs the adapter of each operator that changed there; nodes that
// an adapter adds are raised further like all others. Work is done on copies
// of the nodes concerned. They are put into the model when the last opset has
// been reached, so an error leaves the model as it was.
//
// Adapters read attributes, types and ranks, never the payload of a tensor the
// model stores elsewhere. Where the meaning of a node depends on a rank that
// the model does not tell, they choose a form that needs none.
//
// Functions import opsets of their own, but must agree with the model on the
// definition of every operator they use (and runtimes that inline them use the
// model's). Those for which that would no longer hold are raised with the
// model, the others keep their import.
//
// # Sources
//
// Versions and definitions: the operator schemas and the changelog of the onnx
// package 1.23 (opset 28), https://onnx.ai/onnx/operators/. Versions of the
// file format by opset: the table in https://github.com/onnx/onnx, file
// docs/Versioning.md. Where the definition of an old operator leaves its
// result open (Resize before 11), ONNX Runtime's result is kept.
package opset
