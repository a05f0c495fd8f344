// Package quantize turns the elements of weights into codes, scales and zero points. It
// does not know ONNX: it reads from a [Source] and writes to an io.WriterAt.
//
// A [Weight] describes how one weight is quantized. A [Run] cuts weights into [Tile]s. Weights
// and tiles are immutable. Several workers quantize tiles, each with its own [Buffers].
// Elements are read, ranges give scales, scales give codes. All are written at offsets that
// follow from the weight.
//
// The caller owns the [Outcome] of each tile and merges outcomes in the order of tiles. Sums
// then do not depend on the number of workers.
package quantize
