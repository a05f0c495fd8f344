// Package spec names the settings of a conversion.
//
//		opts := onnxq.Options{Format: spec.NF4, Target: spec.ORT, ExternalData: spec.ExternalAlways}
//
//	  - A [Format] is how values of a weight are stored.
//	  - A [Style] is which operators decode them.
//	  - A [Target] is the runtime that shall run the output.
//	  - [Range], [ScaleType] and [ScaleRule] say how scales are computed and stored.
//	  - A [Candidate] is a format with its settings, for package analyze.
//	  - An [Override] changes options for single weights; package rules reads overrides from documents.
//
// The Parse functions, such as [ParseFormat], turn names of the command line into typed values. The
// stages of a conversion take only typed values. The tables are immutable.
package spec
