"""DequantizeLinear over stored tensors, in numpy and on its own.

Nothing of the onnx package's or a runtime's decoding is used for the codes, so
that a mistake they share with the converter shows.
"""
import numpy as np
from onnx import TensorProto, numpy_helper

# Bits and signedness of the types a weight's codes may have.
INTEGERS = {
    TensorProto.INT2: (2, True), TensorProto.UINT2: (2, False),
    TensorProto.INT4: (4, True), TensorProto.UINT4: (4, False),
    TensorProto.INT8: (8, True), TensorProto.UINT8: (8, False),
}


def codes(tensor):
    """The integer values of a 2-, 4- or 8-bit tensor: packed from the low bits of each byte up."""
    bits, signed = INTEGERS[tensor.data_type]
    if tensor.HasField("raw_data"):
        packed = np.frombuffer(tensor.raw_data, np.uint8)
    else:
        packed = np.array(tensor.int32_data, np.int64).astype(np.uint8)
    count = int(np.prod(tensor.dims, dtype=np.int64))
    assert len(packed) == -(-count * bits // 8), f"{tensor.name}: {len(packed)} bytes for {count} codes of {bits} bits"
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    values = (packed[:, None] >> shifts & (2 ** bits - 1)).ravel()
    assert not values[count:].any(), f"{tensor.name}: the padding behind the last code is not zero"
    values = values[:count].astype(np.int32)
    if signed:
        values -= (values >= 2 ** (bits - 1)) * 2 ** bits
    return values.reshape(tuple(tensor.dims))


def dequantize(q, scale, zero_point, axis, block_size):
    """(q - zero_point) * scale in the scale's type. A block_size of 0 means per tensor or per channel."""
    dtype = scale.dtype
    if block_size:
        blocks = -(-q.shape[axis] // block_size)
        want = q.shape[:axis] + (blocks,) + q.shape[axis + 1:]
        assert scale.shape == want, f"scale {scale.shape}, want {want}"

        def spread(a):
            return np.repeat(a, block_size, axis).take(np.arange(q.shape[axis]), axis)
    else:
        assert scale.ndim == 0 or scale.shape == (q.shape[axis],), f"scale {scale.shape} along axis {axis} of {q.shape}"

        def spread(a):
            return a if a.ndim == 0 else a.reshape([-1 if i == axis else 1 for i in range(q.ndim)])
    if zero_point is not None:
        assert zero_point.shape == scale.shape
        q = q - spread(zero_point)
    # A product of a 9-bit integer and a scale is exact in float64: one rounding, to the scale's type.
    return (q * spread(scale.astype(np.float64))).astype(dtype)


class Decoded:
    """What a DequantizeLinear node makes of the tensors stored for it."""

    def __init__(self, node, tensors):
        attributes = {a.name: a.i for a in node.attribute}
        self.node, self.codes_tensor = node, tensors[0]
        self.codes = codes(tensors[0])
        self.bits, self.signed = INTEGERS[tensors[0].data_type]
        self.scale = numpy_helper.to_array(tensors[1])
        self.zero_point = codes(tensors[2]) if len(tensors) > 2 else None
        self.block_size = attributes.get("block_size", 0)
        self.axis = attributes.get("axis", 1) % max(1, self.codes.ndim)
        self.value = dequantize(self.codes, self.scale, self.zero_point, self.axis, self.block_size)

    def step(self):
        """The scale of every element."""
        return dequantize(np.ones_like(self.codes), self.scale.astype(np.float64), None, self.axis, self.block_size)
