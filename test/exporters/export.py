"""Exports models of models.py: export.py TOOL OUT NAME…, where TOOL is optimum, builder or torch. Prints a line for each.
OUT/source has the checkpoints, OUT/other those of other weights, OUT/TOOL the exports. Fails if one fails that outcome.py does not list."""
import os
import pathlib
import shutil
import sys
import traceback
import warnings

import torch

import models
from outcome import end, tell

warnings.simplefilter("ignore")
os.environ["HF_HUB_OFFLINE"] = "1"

TASKS = {
    "whisper": "automatic-speech-recognition-with-past", "t5": "text2text-generation-with-past", "marian": "text2text-generation-with-past",
    "bert": "feature-extraction", "vit": "image-classification", "convnext": "image-classification",
}


def optimum(source, out, name):
    from optimum.exporters.onnx import main_export

    main_export(str(source), str(out), task=TASKS.get(name, "text-generation-with-past"), do_validation=False)


def builder(source, out, name):
    """NAME or NAME:int4."""
    from onnxruntime_genai.models.builder import create_model, parse_extra_options

    precision = name.partition(":")[2] or "fp32"
    args = "", str(source), str(out), precision, "cpu", str(out) + ".cache"
    create_model(*args, **parse_extra_options(*args, ["hf_token=false"]))
    shutil.rmtree(str(out) + ".cache", ignore_errors=True)


class Decoder(torch.nn.Module):
    """A decoder with its cache as tensors: names and order of its inputs are those of the ONNX model."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, past_key_values):
        from transformers import DynamicCache

        cache = DynamicCache(past_key_values)
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        return out.logits, [(layer.keys, layer.values) for layer in out.past_key_values.layers]


def dynamo(source, out, name):
    import transformers as t
    from torch.export import Dim

    out.mkdir(parents=True)
    dims = {}
    if name in ("bert", "vit", "convnext"):
        model = models.CLASSES[name].from_pretrained(source).eval()
        if name == "bert":
            ids = torch.ones(2, 8, dtype=torch.int64)
            kwargs = {"input_ids": ids, "attention_mask": ids}
            dims = {k: {0: Dim("batch"), 1: Dim("sequence")} for k in kwargs}
        else:
            kwargs = {"pixel_values": torch.zeros(2, 3, 64, 64)}
            dims = {"pixel_values": {0: Dim("batch")}}
        program = torch.onnx.export(model, (), kwargs=kwargs, dynamic_shapes=dims, dynamo=True)
    else:
        model = t.AutoModelForCausalLM.from_pretrained(source, attn_implementation="eager", experts_implementation="batched_mm").eval()
        c = model.config
        head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        past = [tuple(torch.zeros(2, c.num_key_value_heads, 5, head) for _ in range(2)) for _ in range(c.num_hidden_layers)]
        kwargs = {"input_ids": torch.ones(2, 3, dtype=torch.int64), "attention_mask": torch.ones(2, 8, dtype=torch.int64), "past_key_values": past}
        batch = Dim("batch")
        dims = {
            "input_ids": {0: batch, 1: Dim("sequence")}, "attention_mask": {0: batch, 1: Dim("total")},
            "past_key_values": [tuple({0: batch, 2: Dim("past")} for _ in range(2)) for _ in range(c.num_hidden_layers)],
        }
        names = [f"{{}}.{i}.{c}" for i in range(c.num_hidden_layers) for c in ("key", "value")]
        program = torch.onnx.export(
            Decoder(model), (), kwargs=kwargs, dynamic_shapes=dims, dynamo=True,
            input_names=["input_ids", "attention_mask", *(n.format("past_key_values") for n in names)],
            output_names=["logits", *(n.format("present") for n in names)])
    program.save(str(out / "model.onnx"))
    for file in source.glob("*.json"):
        shutil.copy(file, out)


def main():
    tool, out, *names = sys.argv[1:]
    out = pathlib.Path(out)
    for name in names:
        target, source = out / tool / name.replace(":", "-"), out / "source" / name.partition(":")[0]
        try:
            if not source.exists():
                models.write(source.name, source)
                models.write(source.name, out / "other" / source.name, seed=8)
            {"optimum": optimum, "builder": builder, "torch": dynamo}[tool](source, target, name)
            print("exported", tool, name, flush=True)
        except Exception as e:
            shutil.rmtree(target, ignore_errors=True)
            tell(f"failed {tool} {name} {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}", wrong=True)
            traceback.print_exc(limit=-6)
    end()


if __name__ == "__main__":
    main()
