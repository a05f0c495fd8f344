// Package compare compares two models: [Diff] their structure and the contents of their
// tensors, [MatchWeights] a float model with the same model after quantizing and
// dequantizing.
//
// Both get open models, which they only read, and return results that the caller owns.
package compare
