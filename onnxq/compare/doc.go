// Package compare tells whether a quantized model is its float model with other weights.
//
// [MatchWeights] compares a float model with its quantized one, which package restyle made
// float again: whether they are the same except for their weights, and how large the errors
// of the weights are. Package diff compares any two models.
//
// It gets open models, which it only reads, and returns results that the caller owns.
package compare
