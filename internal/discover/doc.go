// Package discover decides for each float tensor of a model whether and how it is quantized, or why
// it stays in float.
//
// It takes a [graph.Graph] and typed [Options], and follows each tensor to the operators that read
// it. It returns one finished [Decision] per tensor, which the caller owns. It reads no weights.
package discover
