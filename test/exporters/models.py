"""Folders of Hugging Face models with random weights. Nothing is downloaded."""
import json

import torch
import transformers as t
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCAB = 320
SIZES = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)
EXPERTS = dict(SIZES, num_hidden_layers=2)
TOKENS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
SPEECH = dict(vocab_size=VOCAB, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128)

CONFIGS = {
    "llama": lambda: t.LlamaConfig(**SIZES, **TOKENS, tie_word_embeddings=False),
    "llama-tied": lambda: t.LlamaConfig(**SIZES, **TOKENS, tie_word_embeddings=True),
    "qwen2": lambda: t.Qwen2Config(**SIZES, **TOKENS, tie_word_embeddings=True),
    "qwen3": lambda: t.Qwen3Config(**SIZES, **TOKENS, head_dim=16, tie_word_embeddings=True),
    "phi3": lambda: t.Phi3Config(**SIZES, **TOKENS, original_max_position_embeddings=128),
    "gemma2": lambda: t.Gemma2Config(**SIZES, **TOKENS, head_dim=16, sliding_window=64),
    "gemma3": lambda: t.Gemma3TextConfig(**SIZES, **TOKENS, head_dim=16, sliding_window=64),
    "mistral": lambda: t.MistralConfig(**SIZES, **TOKENS, head_dim=16, sliding_window=None),
    "mixtral": lambda: t.MixtralConfig(**EXPERTS, **TOKENS, num_local_experts=4),
    "qwen2-moe": lambda: t.Qwen2MoeConfig(**EXPERTS, **TOKENS, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=64),
    "qwen3-moe": lambda: t.Qwen3MoeConfig(**EXPERTS, **TOKENS, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64),
    "gpt-oss": lambda: t.GptOssConfig(**EXPERTS, **TOKENS, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=32),
    "whisper": lambda: t.WhisperConfig(
        **SPEECH, num_mel_bins=80, max_source_positions=1500, max_target_positions=64, decoder_start_token_id=1, suppress_tokens=[], begin_suppress_tokens=[], **TOKENS),
    "t5": lambda: t.T5Config(vocab_size=VOCAB, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1),
    "marian": lambda: t.MarianConfig(**SPEECH, max_position_embeddings=128, decoder_start_token_id=0, pad_token_id=0, eos_token_id=2, forced_eos_token_id=None),
    "bert": lambda: t.BertConfig(vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128),
    "vit": lambda: t.ViTConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=64, patch_size=16, num_labels=10),
    "convnext": lambda: t.ConvNextConfig(hidden_sizes=[32, 64, 64, 64], depths=[1, 1, 2, 1], image_size=64, num_labels=10),
}
CLASSES = {
    "whisper": t.WhisperForConditionalGeneration, "t5": t.T5ForConditionalGeneration, "marian": t.MarianMTModel, "bert": t.BertModel,
    "vit": t.ViTForImageClassification, "convnext": t.ConvNextForImageClassification,
}


def model(name, seed=7):
    torch.manual_seed(seed)
    m = CLASSES.get(name) or t.AutoModelForCausalLM
    config = CONFIGS[name]()
    m = m(config) if name in CLASSES else m.from_config(config)
    m = m.float().eval()
    with torch.no_grad():  # The usual 0.02 makes all logits alike.
        for key, p in m.named_parameters():
            if p.dim() >= 2:
                torch.nn.init.normal_(p, std=1 / max(p.shape[-1], 1) ** 0.5)
            elif p.dim() == 1:  # Exporters store equal tensors once, so no two norms may be alike.
                p.add_(0.1 * torch.randn_like(p))
    return m


def tokenizer():
    """Bytes, after three special tokens."""
    vocab = {c: i for i, c in enumerate(["<pad>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    tok = Tokenizer(models.BPE(vocab, []))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    return t.PreTrainedTokenizerFast(tokenizer_object=tok, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<pad>")


def write(name, out, seed=7):
    m = model(name, seed)
    m.save_pretrained(out)
    if name in ("vit", "convnext"):
        half = [0.5] * 3
        settings = {"image_processor_type": "ViTImageProcessor", "size": {"height": 64, "width": 64}, "image_mean": half, "image_std": half}
        (out / "preprocessor_config.json").write_text(json.dumps(settings))
        return
    tokenizer().save_pretrained(out)
    if name == "whisper":
        t.WhisperFeatureExtractor(feature_size=80).save_pretrained(out)

