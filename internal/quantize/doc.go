// Package quantize turns the elements of weights into codes, scales and zero points.
// It knows no ONNX: it reads elements from a Source and writes to io.WriterAt.
//
// A [Weight] says what is to be done. It is finished when it gets here and is never
// changed. A [Run] cuts weights into [Tile]s, which several workers quantize, each with
// [Buffers] of its own. A tile is read, its ranges give scales, the scales give codes,
// and codes, scales and zero points are written at offsets that the weight knows. What
// a tile found out is an [Outcome]; outcomes are merged in the order of tiles, so that
// sums are the same at any number of workers.
package quantize
