"""ModelOpt's weight quantizer: INT4 codes in blocks of 128 behind DequantizeLinear."""
import logging
import sys

logging.disable(logging.CRITICAL)
import onnx
from modelopt.onnx.quantization.int4 import quantize

model = quantize(onnx.load(sys.argv[1]), calibration_method="rtn_dq", block_size=128)
onnx.save(model, sys.argv[2], save_as_external_data=True)
