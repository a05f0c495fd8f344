// Package kvcache finds the key-value caches of decoders, and stores them in 8 bits.
//
// A cache is an input of a model that an operator extends by the keys or values of new tokens, and the
// output that has the longer cache. [Find] finds caches by the graph, not by names. The branches of an If may extend it, as in merged
// decoders: there the cache of an encoder, which a branch only reads, belongs to the output of its name.
//
// An [Observer] finds scales from values of a cache. [Apply] gets the copy of a model, which it changes, and the scales: the
// caches become int8. GroupQueryAttention reads and writes such codes itself. Around other operators there are
// DequantizeLinear and QuantizeLinear. [Float] makes a graph with float caches again. [Coded] lists the caches of a model
// that are int8, with their scales.
package kvcache
