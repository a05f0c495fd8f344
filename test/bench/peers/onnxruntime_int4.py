"""onnxruntime's weight quantizer: INT4 codes in blocks of 128 behind DequantizeLinear."""
import logging
import sys

logging.disable(logging.CRITICAL)
import onnx
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
from onnxruntime.quantization.quant_utils import QuantFormat

config = DefaultWeightOnlyQuantConfig(block_size=128, is_symmetric=True, quant_format=QuantFormat.QDQ)
quantizer = MatMulNBitsQuantizer(onnx.load(sys.argv[1]), algo_config=config)
quantizer.process()
quantizer.model.save_model_to_file(sys.argv[2], True)
