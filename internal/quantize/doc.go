// Package quantize turns the elements of weights into codes, scales and zero points. It
// does not know ONNX: it reads from a [Source] and writes to an io.WriterAt.
//
// A [Weight] says what to do and is immutable. A [Run] cuts weights into [Tile]s, which are
// immutable too. Several workers quantize tiles, each with its own [Buffers]: a tile is read,
// ranges give scales, scales give codes, and all are written at offsets that the weight
// knows. The caller owns the [Outcome] of each tile and merges them in the order of tiles,
// so that sums do not depend on the number of workers.
package quantize
