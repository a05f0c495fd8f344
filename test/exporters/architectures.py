"""Exports small models with random weights by Optimum, of architectures that models.py does not have: architectures.py OUT [NAME…].

OUT/NAME gets the model. It needs the packages of requirements-optimum.txt. compare.py compares the Go engine with ONNX Runtime on them.
"""
import os
import pathlib
import shutil
import sys
import tempfile
import warnings

import torch
import transformers as t

WORDS = 320
TOKENS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
ENCODER = dict(vocab_size=WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128)
DECODER = dict(ENCODER, num_key_value_heads=2, **TOKENS)
GPT = dict(vocab_size=WORDS, n_embd=64, n_layer=2, n_head=4, n_positions=128, **TOKENS)
BART = dict(vocab_size=WORDS, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
            decoder_ffn_dim=128, max_position_embeddings=128, decoder_start_token_id=1, **TOKENS)
IMAGE = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=64, patch_size=16)
VIT = dict(IMAGE, num_labels=10)
SPEECH = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=40, conv_dim=(32,) * 7,
              num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4)
BACKBONE = t.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], out_features=["stage2"])
WRITE, FEATURES, IMAGES, CLASSES = "text-generation-with-past", "feature-extraction", "image-classification", "text-classification"
TRANSLATE, HEAR = "text2text-generation-with-past", "automatic-speech-recognition"

# The names of a configuration and of a model, the configuration's fields, and Optimum's task.
MODELS = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", GPT, WRITE),
    "gpt_neo": ("GPTNeoConfig", "GPTNeoForCausalLM", dict(vocab_size=WORDS, hidden_size=64, num_layers=2, attention_types=[[["global", "local"], 1]],
        num_heads=4, max_position_embeddings=128, **TOKENS), WRITE),
    "gptj": ("GPTJConfig", "GPTJForCausalLM", dict(GPT, rotary_dim=8), WRITE),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", dict(ENCODER, **TOKENS), WRITE),
    "codegen": ("CodeGenConfig", "CodeGenForCausalLM", dict(GPT, rotary_dim=8), WRITE),
    "bloom": ("BloomConfig", "BloomForCausalLM", dict(vocab_size=WORDS, hidden_size=64, n_layer=2, n_head=4, **TOKENS), WRITE),
    "opt": ("OPTConfig", "OPTForCausalLM", dict(vocab_size=WORDS, hidden_size=64, ffn_dim=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=128, word_embed_proj_dim=64, **TOKENS), WRITE),
    "falcon": ("FalconConfig", "FalconForCausalLM", dict(vocab_size=WORDS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, **TOKENS), WRITE),
    "mpt": ("MptConfig", "MptForCausalLM", dict(vocab_size=WORDS, d_model=64, n_heads=4, n_layers=2, max_seq_len=128), WRITE),
    "gpt_bigcode": ("GPTBigCodeConfig", "GPTBigCodeForCausalLM", GPT, WRITE),
    "stablelm": ("StableLmConfig", "StableLmForCausalLM", DECODER, WRITE),
    "olmo": ("OlmoConfig", "OlmoForCausalLM", DECODER, WRITE),
    "olmo2": ("Olmo2Config", "Olmo2ForCausalLM", DECODER, WRITE),
    "granite": ("GraniteConfig", "GraniteForCausalLM", DECODER, WRITE),
    "phi": ("PhiConfig", "PhiForCausalLM", dict(DECODER, num_key_value_heads=4), WRITE),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", dict(DECODER, head_dim=16), WRITE),
    "cohere": ("CohereConfig", "CohereForCausalLM", DECODER, WRITE),
    "arcee": ("ArceeConfig", "ArceeForCausalLM", DECODER, WRITE),
    "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM", DECODER, WRITE),
    "helium": ("HeliumConfig", "HeliumForCausalLM", dict(DECODER, head_dim=16), WRITE),
    "nemotron": ("NemotronConfig", "NemotronForCausalLM", DECODER, WRITE),
    "internlm": ("GlmConfig", "GlmForCausalLM", dict(DECODER, head_dim=16), WRITE),
    "bart": ("BartConfig", "BartForConditionalGeneration", BART, TRANSLATE),
    "pegasus": ("PegasusConfig", "PegasusForConditionalGeneration", BART, TRANSLATE),
    "blenderbot": ("BlenderbotConfig", "BlenderbotForConditionalGeneration", BART, TRANSLATE),
    "m2m_100": ("M2M100Config", "M2M100ForConditionalGeneration", BART, TRANSLATE),
    "mbart": ("MBartConfig", "MBartForConditionalGeneration", BART, TRANSLATE),
    "longt5": ("LongT5Config", "LongT5ForConditionalGeneration", dict(vocab_size=WORDS, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
        local_radius=7, decoder_start_token_id=0, pad_token_id=0), TRANSLATE),
    "albert": ("AlbertConfig", "AlbertModel", dict(ENCODER, embedding_size=32), FEATURES),
    "roberta": ("RobertaConfig", "RobertaForSequenceClassification", ENCODER, CLASSES),
    "distilbert": ("DistilBertConfig", "DistilBertForSequenceClassification", dict(vocab_size=WORDS, dim=64, hidden_dim=128, n_layers=2, n_heads=4,
        max_position_embeddings=128), CLASSES),
    "deberta": ("DebertaConfig", "DebertaModel", dict(ENCODER, relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=32), FEATURES),
    "deberta-v2": ("DebertaV2Config", "DebertaV2Model", dict(ENCODER, relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=16), FEATURES),
    "electra": ("ElectraConfig", "ElectraModel", dict(ENCODER, embedding_size=32), FEATURES),
    "mobilebert": ("MobileBertConfig", "MobileBertModel", dict(ENCODER, embedding_size=32, intra_bottleneck_size=32, true_hidden_size=32), FEATURES),
    "squeezebert": ("SqueezeBertConfig", "SqueezeBertModel", dict(ENCODER, embedding_size=64, q_groups=2, k_groups=2, v_groups=2, post_attention_groups=1,
        intermediate_groups=2, output_groups=2), FEATURES),
    "mpnet": ("MPNetConfig", "MPNetModel", ENCODER, FEATURES),
    "xlm-roberta": ("XLMRobertaConfig", "XLMRobertaModel", ENCODER, FEATURES),
    "camembert": ("CamembertConfig", "CamembertForTokenClassification", ENCODER, "token-classification"),
    "ibert": ("IBertConfig", "IBertModel", ENCODER, FEATURES),
    "convbert": ("ConvBertConfig", "ConvBertModel", dict(ENCODER, embedding_size=64), FEATURES),
    "modernbert": ("ModernBertConfig", "ModernBertModel", dict(ENCODER, **{"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1,
        "eos_token_id": 2}, global_attn_every_n_layers=2, reference_compile=False), FEATURES),
    "roformer": ("RoFormerConfig", "RoFormerModel", dict(ENCODER, embedding_size=64), FEATURES),
    "rembert": ("RemBertConfig", "RemBertModel", dict(ENCODER, input_embedding_size=32), FEATURES),
    "esm": ("EsmConfig", "EsmForMaskedLM", dict(ENCODER, pad_token_id=0, mask_token_id=3), "fill-mask"),
    "bigbird": ("BigBirdConfig", "BigBirdModel", dict(ENCODER, attention_type="original_full"), FEATURES),
    "splinter": ("SplinterConfig", "SplinterModel", ENCODER, FEATURES),
    "deit": ("DeiTConfig", "DeiTForImageClassification", VIT, IMAGES),
    "beit": ("BeitConfig", "BeitForImageClassification", VIT, IMAGES),
    "swin": ("SwinConfig", "SwinForImageClassification", dict(image_size=64, patch_size=4, embed_dim=32, depths=[1, 1], num_heads=[2, 4],
        window_size=4, num_labels=10), IMAGES),
    "swinv2": ("Swinv2Config", "Swinv2ForImageClassification", dict(image_size=64, patch_size=4, embed_dim=32, depths=[1, 1], num_heads=[2, 4],
        window_size=4, num_labels=10), IMAGES),
    "swin2sr": ("Swin2SRConfig", "Swin2SRForImageSuperResolution", dict(image_size=32, embed_dim=24, depths=[1, 1], num_heads=[2, 2], window_size=4),
        "image-to-image"),
    "resnet": ("ResNetConfig", "ResNetForImageClassification", dict(embedding_size=32, hidden_sizes=[32, 64], depths=[1, 1], num_labels=10), IMAGES),
    "regnet": ("RegNetConfig", "RegNetForImageClassification", dict(embedding_size=16, hidden_sizes=[32, 64], depths=[1, 1], groups_width=16,
        num_labels=10), IMAGES),
    "mobilenet_v1": ("MobileNetV1Config", "MobileNetV1ForImageClassification", dict(image_size=64, depth_multiplier=0.25, num_labels=10), IMAGES),
    "mobilenet_v2": ("MobileNetV2Config", "MobileNetV2ForImageClassification", dict(image_size=64, depth_multiplier=0.25, num_labels=10), IMAGES),
    "mobilevit": ("MobileViTConfig", "MobileViTForImageClassification", dict(image_size=64, hidden_sizes=[32, 48, 64], neck_hidden_sizes=[8, 16, 24,
        32, 40, 48, 64], num_labels=10), IMAGES),
    "levit": ("LevitConfig", "LevitForImageClassification", dict(image_size=64, hidden_sizes=[32, 48, 64], num_attention_heads=[2, 3, 4], depths=[1,
        1, 1], num_labels=10), IMAGES),
    "poolformer": ("PoolFormerConfig", "PoolFormerForImageClassification", dict(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 48, 64], num_labels=10),
        IMAGES),
    "convnextv2": ("ConvNextV2Config", "ConvNextV2ForImageClassification", dict(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], num_labels=10),
        IMAGES),
    "yolos": ("YolosConfig", "YolosForObjectDetection", dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        image_size=[64, 64], num_detection_tokens=8, num_labels=10), "object-detection"),
    "dpt": ("DPTConfig", "DPTForDepthEstimation", dict(hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
        image_size=64, patch_size=16, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[16, 32, 48, 64], fusion_hidden_size=32),
        "depth-estimation"),
    "efficientnet": ("EfficientNetConfig", "EfficientNetForImageClassification", dict(image_size=64, width_coefficient=0.25, depth_coefficient=0.25,
        hidden_dim=320, num_labels=10), IMAGES),
    "vit_mae": ("ViTMSNConfig", "ViTMSNModel", VIT, FEATURES),
    "clip": ("CLIPConfig", "CLIPModel", dict(text_config=dict(ENCODER, **TOKENS), vision_config=dict(hidden_size=64, intermediate_size=128,
        num_hidden_layers=2, num_attention_heads=4, image_size=64, patch_size=16), projection_dim=32), "zero-shot-image-classification"),
    "siglip": ("SiglipConfig", "SiglipModel", dict(text_config=dict(ENCODER, **TOKENS), vision_config=dict(hidden_size=64, intermediate_size=128,
        num_hidden_layers=2, num_attention_heads=4, image_size=64, patch_size=16)), "zero-shot-image-classification"),
    "detr": ("DetrConfig", "DetrForObjectDetection", dict(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=None
        if not hasattr(t, "ResNetConfig") else t.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], out_features=["stage2"]),
        d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
        num_queries=8), "object-detection"),
    "wav2vec2": ("Wav2Vec2Config", "Wav2Vec2ForCTC", SPEECH, HEAR),
    "hubert": ("HubertConfig", "HubertForCTC", SPEECH, HEAR),
    "wavlm": ("WavLMConfig", "WavLMForCTC", SPEECH, HEAR),
    "unispeech": ("UniSpeechConfig", "UniSpeechForCTC", SPEECH, HEAR),
    "wav2vec2-conformer": ("Wav2Vec2ConformerConfig", "Wav2Vec2ConformerForCTC", SPEECH, HEAR),
    "data2vec-audio": ("Data2VecAudioConfig", "Data2VecAudioForCTC", SPEECH, HEAR),
    "sew": ("SEWConfig", "SEWForCTC", dict(SPEECH, squeeze_factor=2, conv_dim=(32,) * 13), HEAR),
    "ast": ("ASTConfig", "ASTForAudioClassification", dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_length=128, num_labels=10), "audio-classification"),
    "vits": ("VitsConfig", "VitsModel", dict(vocab_size=40, hidden_size=32, num_hidden_layers=1, ffn_dim=64, flow_size=32, spectrogram_bins=33,
        upsample_initial_channel=32, prior_encoder_num_flows=1, depth_separable_channels=2), "text-to-audio"),
    "patchtst": ("PatchTSTConfig", "PatchTSTForPrediction", dict(num_input_channels=3, context_length=64, patch_length=8, patch_stride=8, d_model=32,
        num_hidden_layers=2, num_attention_heads=4, ffn_dim=64, prediction_length=8), "time-series-forecasting"),
}


def export(name, out):
    from optimum.exporters.onnx import main_export

    config, model, fields, task = MODELS[name]
    torch.manual_seed(7)
    m = getattr(t, model)(getattr(t, config)(**fields)).float().eval()
    m.config.architectures = [model]
    with tempfile.TemporaryDirectory() as source:
        m.save_pretrained(source)
        main_export(source, str(out), task=task, do_validation=False, no_post_process=True)


def main():
    warnings.simplefilter("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    for name in sys.argv[2:] or MODELS:
        out = pathlib.Path(sys.argv[1], name)
        try:
            export(name, out)
            print("exported", name, flush=True)
        except Exception as e:
            shutil.rmtree(out, ignore_errors=True)
            print(f"failed {name} {type(e).__name__}: {str(e).splitlines()[0][:120]}", flush=True)


if __name__ == "__main__":
    main()
