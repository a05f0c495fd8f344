// Package quantutil computes the same, bit for bit, as the quant_utils module of NVIDIA
// ModelOpt's ONNX quantization (version 0.47.0): the scales and codes of integer and
// NVFP4 weights, the exponents of MXFP8 weights, packing, and the choice of bits and
// block size for a layer. The rest of the project is tested against it. It keeps the
// quirks of ModelOpt, and the comments name them.
//
// # Tensors and types
//
// Functions get and return a [Tensor]: a type, a shape and values. They do not change their
// arguments. Arithmetic follows numpy. Operands of two types are converted to the type
// that [Promote] returns; the result of each operation is rounded to that type, to
// nearest, ties to even. Python numbers (alpha, 1e-5, 15) take the type of the tensor they
// meet, but a float that meets bfloat16 makes the result float32, so bfloat16
// weights have float32 scales.
//
// Where the reference raises an exception or an assertion fails, the functions return an
// error. NaN gets code 0; in the reference it depends on the C compiler.
//
// The values of a tensor are held as float64, which is exact for every type.
// For large weights see packages int4 and the like, which work on streams.
//
// # Blocks
//
// A routine that takes a block size and an axis cuts that axis into blocks of
// the given length, all lines along it alike, and pads the last block with
// zeros. The zeros count: they widen the range of a short block to contain 0.
// Scales have the tensor's shape, the axis divided by the block, rounded up.
//
// Tensors of three and more axes have a quirk, except on the first and the last
// axis. There FindScales pads the axis that it is told, but cuts the last one,
// which the block must divide. RTN and DQTensor then accept the scales only if
// one block spans the last axis.
package quantutil
