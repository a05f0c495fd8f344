// Package graph indexes the values of a model: which node makes each value and which nodes read it, in
// the main graph, its subgraphs and the model's functions.
//
// [New] gets an opened file and checks the model's structure. The [Graph] that it returns points into
// the file's protobuf messages and is immutable: all stages share it. A stage that changes the model
// works on a [Copy], which it owns.
package graph
