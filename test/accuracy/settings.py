"""What is measured of onnxquant, on every model: rows and columns of the tables in docs/accuracy.md.

A new algorithm is a row of ALGORITHMS, a new format one of FORMATS.
"""
from dataclasses import dataclass

# Integer formats take every algorithm.
LAYOUTS = [
    "int2 --block 16 --zero-point",
    "int4 --block 16 --scale-type int8", "int4 --block -1", "int4", "int4 --block 32", "int4 --block 32 --zero-point",
    "int8 --block -1",
]
CALIBRATED = {"int2 --block 16 --zero-point", "int4 --block 16 --scale-type int8", "int4 --block -1", "int4 --block 32", "int4 --block 32 --zero-point"}
NARROW = set(LAYOUTS) - {"int8 --block -1"}  # where algorithms differ by more than their noise


@dataclass(frozen=True)
class Algorithm:
    name: str  # head of its column
    flags: str = ""
    data: str = ""  # "": none; "text": samples; "self": the model's own
    zero_point: bool = False  # needs zero points
    layouts: frozenset = frozenset(NARROW)

    def takes(self, layout, model):
        return (layout in self.layouts and (not self.zero_point or "--zero-point" in layout)
                and (self.data != "self" or model.own_samples))


ALGORITHMS = [
    Algorithm("rtn", layouts=frozenset(LAYOUTS)),
    Algorithm("rtn-ort", "--algorithm rtn-ort"),
    Algorithm("k_quant", "--algorithm k_quant", zero_point=True),
    Algorithm("hqq", "--algorithm hqq", zero_point=True),
    Algorithm("mse", "--algorithm mse"),
    Algorithm("best", "--algorithm best"),
    Algorithm("gptq, data", "--algorithm gptq", "text", layouts=frozenset(CALIBRATED)),
    Algorithm("awq, data", "--algorithm awq", "text", layouts=frozenset(CALIBRATED)),
    Algorithm("best, data", "--algorithm best", "text", layouts=frozenset(CALIBRATED)),
    Algorithm("best, self", "--algorithm best", "self", layouts=frozenset({"int4 --block 16 --scale-type int8", "int4 --block 32 --zero-point"})),
]

# Formats with a rule of their own.
FORMATS = [
    "fp8-e4m3", "mxfp8", "nvfp4", "mxfp4", "nf4",
    *(f"{f} --algorithm best" for f in ("fp8-e4m3", "nvfp4", "mxfp4", "nf4")),
    *(f"{f} --algorithm mse" for f in ("fp8-e4m3", "nvfp4", "mxfp4", "nf4", "q3_k", "q4_0", "q4_k", "q5_k")),
    "q2_k", "q3_k", "q4_0", "q4_k", "iq4_nl", "q5_k", "q6_k",
    "int4 --block 32 --zero-point --algorithm hqq --style nbits",
]

# Those that are calibrated.
BY_DATA = Algorithm("best, data", "--algorithm best", "text")
CALIBRATED_FORMATS = ["fp8-e4m3", "nvfp4", "mxfp4", "nf4", "q2_k", "q4_0", "q4_k"]

# Uniform formats whose sizes are given to the search for a mix.
SIZES = ["int4 --block 32"]


@dataclass(frozen=True)
class Mix:
    name: str
    data: bool  # the damage to the outputs is measured; else the errors of weights count
    algorithm: str  # of the codes of integer formats


MIXES = [Mix("by errors of weights, rtn", False, "rtn"), Mix("by outputs, rtn", True, "rtn"), Mix("by outputs, best", True, "best")]

# What the last of them must keep, by model: KL of files of at most so many bytes, with 5 % of slack.
HELD = {"tinygpt": {1_247_000: 0.0020, 1_347_529: 0.00092, 1_459_657: 0.00063}}
SLACK = 1.05

# Of the recognizer with its convolutions: formats, and mixes by the share of the float file that they may have.
WHOLE = ["int8", "int4 --block 32", "int4", "q4_k", "int4 --conv-format int4"]
SHARES = [0.25]
