// Package discover decides what becomes of each float tensor of a model: whether it is
// quantized and how, or why it stays.
//
// It gets a [graph.Graph] and typed [Options], follows each tensor to the operators that
// read it, and returns one finished [Decision] for each. It reads no weights.
package discover
