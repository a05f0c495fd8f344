// Package opset raises the ai.onnx operator set that a model imports.
//
// [Raise] gets a model and changes it in place; the caller owns the model, and after an error it is
// unchanged. DequantizeLinear takes blocked 4-bit weights from opset 21 on and 2-bit weights from 25
// on, but models may have any opset from 1 on. An operator has a list of definitions; each holds from
// the opset that published it until the next definition. A model keeps its meaning at a higher opset
// only if each operator kept its definition, or is rewritten for the new one.
//
// # The table
//
// operators (table.go) lists every operator of ai.onnx with the opsets that changed its definition. A
// change is compatible if it added a type, an optional input or an attribute whose default is the old
// behavior, or corrected a description. Any other change has an adapter, which rewrites a node of the
// old definition as nodes of the new one. Some nodes cannot be rewritten; the adapter's comment says
// which, and why.
//
// nonstandard (nonstandard.go) lists operators that runtimes accept in this domain although the opset
// does not define them. Raise refuses unknown operators.
//
// # Raising
//
// Raise goes up one opset at a time. At each opset it visits the nodes of the graph, the subgraphs,
// the model's functions and the training graphs. It runs the adapter of each operator that changed at
// that opset. Nodes added by an adapter are raised further like all others. Adapters work on copies of
// nodes, which are put into the model at the end.
//
// Adapters read attributes, types and ranks, never the content of a tensor in a file. If a node
// depends on a rank that the model does not declare, they choose a form that works for any rank.
//
// A function imports opsets of its own. But runtimes that inline functions apply the definitions of
// the model's opset. So a function is raised with the model if one of its operators has another
// definition there; else it keeps its import.
//
// # Sources
//
// Versions and definitions: the operator schemas and the changelog of the onnx package 1.23 (opset
// 28), https://onnx.ai/onnx/operators/. Versions of the file format by opset: the table in
// https://github.com/onnx/onnx, file docs/Versioning.md. Where an old definition does not determine
// the result (Resize before 11), the rewritten node has the result of ONNX Runtime.
package opset
