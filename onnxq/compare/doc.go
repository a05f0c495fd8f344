// Package compare checks that a quantized model is its float model with other weights.
//
// [MatchWeights] gets a float model and its quantized model, which package restyle has decoded to
// float. It reports whether they are the same except for their weights, and how large the errors of
// the weights are. Package diff compares any two models.
//
// The caller owns the models, which are only read, and the results.
package compare
