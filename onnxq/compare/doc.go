// Package compare tells how two models differ.
//
//	difference, err := compare.Diff(ctx, a, b, nil)
//	for _, c := range difference.Changes {
//		fmt.Println(c)
//	}
//
// [Diff] compares everything that models hold, structure and contents of tensors.
// [MatchWeights] compares a float model with its quantized one, which package restyle made
// float again: whether they are the same but for their weights, and how large the errors
// of the weights are.
//
// Both get open models, which they only read, and return results that the caller owns.
package compare
