// Package spec names what a conversion can be asked for.
//
//	opts := onnxq.Options{Format: spec.NF4, Target: spec.ORT, ExternalData: spec.ExternalAlways}
//
// A [Format] is what the values of a weight become, a [Style] the form in which the model
// holds them, a [Target] the runtime that shall run the output. [Range], [ScaleType] and [ScaleRule]
// say how scales are found. A [Candidate] is a format with a block size; package analyze
// tries several. An [Override] changes options for single weights; package rules reads
// them from documents. The Parse functions read the names that the command line takes.
//
// All are values. Texts are parsed here once, at the edge, by functions such as [ParseFormat];
// the stages of a conversion get typed values. The tables are immutable.
package spec
