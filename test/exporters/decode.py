"""Runs exported decoders in ONNX Runtime, token by token, with their caches."""
import numpy as np
import onnxruntime as ort

TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int8)": np.int8, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}
PROMPT = [5, 17, 33, 80, 6, 250, 91, 12]


def distance(got, want):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, (got.shape, want.shape)
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def session(path):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def cache_of(i, heads, size, window):
    """An empty cache: heads and channels as declared, else as given. One that slides is as long as the window."""
    shape = [d if isinstance(d, int) and d > 0 else None for d in i.shape]
    shape = [1, shape[1] or heads, window if "sliding" in str(i.shape[2:3]) else 0, shape[3] or size] if len(shape) == 4 else [1 if k == 0 else d or 0 for k, d in enumerate(shape)]
    return np.zeros(shape, TYPES[i.type])


def logits(path, tokens=PROMPT, forced=(7, 100, 200, 31), encoder=None, config=None):
    """Logits of the prompt, and of forced tokens that are read one by one with the cache: [prompt + forced, vocabulary]."""
    s = session(path)
    config = config or {}
    heads, size, window = (config.get(key) or 0 for key in ("num_key_value_heads", "head_dim", "window_size"))
    cache = {i.name: cache_of(i, heads, size, window) for i in s.get_inputs() if "past" in i.name}
    rows, seen = [], 0
    for step in [list(tokens), *([t] for t in forced)]:
        feed = dict(cache)
        for i in s.get_inputs():
            if i.name in ("input_ids", "decoder_input_ids"):
                feed[i.name] = np.array([step], TYPES[i.type])
            elif i.name == "attention_mask":
                feed[i.name] = np.ones((1, seen + len(step)), TYPES[i.type])
            elif i.name == "position_ids":
                feed[i.name] = np.arange(seen, seen + len(step), dtype=TYPES[i.type])[None]
            elif i.name == "encoder_hidden_states":
                feed[i.name] = encoder
            elif i.name == "encoder_attention_mask":
                feed[i.name] = np.ones(encoder.shape[:2], TYPES[i.type])
            elif i.name == "use_cache_branch":
                feed[i.name] = np.array([seen > 0])
            elif i.name not in feed:
                raise ValueError(f"{path}: what is the input {i.name}?")
        made = dict(zip([o.name for o in s.get_outputs()], s.run(None, feed)))
        rows.append(made["logits"][0])
        for name in cache:
            new = made[name.replace("past_key_values", "present").replace("past_key", "present_key").replace("past_value", "present_value")]
            if new.size or not cache[name].size:  # a merged decoder returns nothing for the encoder's cache, once it is there
                cache[name] = new
        seen += len(step)
    return np.concatenate(rows)


def outputs(path):
    """Outputs of an encoder."""
    s = session(path)
    rng = np.random.default_rng(3)
    feed = {}
    for i in s.get_inputs():
        if i.type == "tensor(float)":
            shape = [d if isinstance(d, int) else {0: 1, 1: 3}.get(k, 64) for k, d in enumerate(i.shape)]
            if i.name == "input_features":
                shape = [1, 80, 3000]
            feed[i.name] = rng.standard_normal(shape).astype(np.float32)
        else:
            feed[i.name] = np.zeros((1, 8), np.int64) if i.name == "token_type_ids" else np.array([PROMPT]) if i.name == "input_ids" else np.ones((1, 8), np.int64)
    return s.run(None, feed)[0]
