"""Prints a line for each result. Those that are wrong and not known fail the script at its end."""
import re
import sys

# How lines begin that are wrong for a known reason.
KNOWN = [
    # No decoder with a cache of its own, or one whose cache of the encoder no operator extends: --kv-cache refuses it.
    r"(optimum|torch)/(bert|convnext|vit): cache.*: EXIT 1: .*only causal language models",
    r"optimum/(marian|t5|whisper): cache.*: EXIT 1: .*only causal language models",
    r"optimum/(marian|t5|whisper): cache.*: decoder_with_past_model.onnx: no output",
    r"builder/whisper: cache.*: EXIT 1: decoder.onnx: key-value cache: ",
    # One token of twelve differs by 0.23, the others by at most 0.02: probably its router chooses another expert.
    r"torch/qwen3-moe: cache per channel: model.onnx: FAR 0\.06",
    # decode.py makes no cache of the encoder.
    r"builder/whisper: decoder.onnx itself was not run: ",
    # The decoder of onnxruntime-genai's Whisper reads a cache that the encoder makes.
    r"genai whisper cache: EXIT 1: .*it cannot become int8",
    # What the exporters do not take. gpt-oss in int4 wants a checkpoint in MXFP4.
    r"failed optimum mixtral ValueError",
    r"failed builder mixtral NotImplementedError",
    r"failed builder gemma3 KeyError: 'rope_type'",
    r"failed builder gpt-oss:int4 RuntimeError: Original GPT-OSS MXFP4 tensor",
    # --weights-from warns of tensors that it does not find: torch names the modules of ViT otherwise.
    r"torch/vit/model.onnx: FAR ",
    # torch's export of BERT differs by 0.75 from its own checkpoint; all of its weights arrive.
    r"torch/bert/model.onnx: FAR ",
]

unexpected = 0


def tell(line, wrong=False):
    global unexpected
    if wrong and not any(re.match(pattern, line) for pattern in KNOWN):
        unexpected += 1
        line = "UNEXPECTED " + line
    print(line, flush=True)


def end():
    if unexpected:
        sys.exit(f"{unexpected} results are wrong and not known")
