// Package diff lists the differences between two models, in their structure and in the contents of
// their tensors.
//
//	difference, err := diff.Models(ctx, a, b, nil)
//	for _, c := range difference.Changes {
//		fmt.Println(c)
//	}
//
// [Models] gets open models, which it only reads, and returns a result that the caller owns. Package
// compare compares a quantized model with its float model by the values of the weights.
package diff
