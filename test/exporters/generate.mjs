// Runs a folder with transformers.js: node generate.mjs MODELS NAME DTYPE. Prints what it generates, or a sum of its output.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { AutoModel, AutoModelForCausalLM, AutoModelForImageClassification, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq, Tensor, env } from "@huggingface/transformers";

const [models, name, dtype] = process.argv.slice(2);
env.allowRemoteModels = false;
env.localModelPath = models;
const { model_type: type } = JSON.parse(readFileSync(join(models, name, "config.json"), "utf8"));
const options = { dtype, device: "cpu" };
const longs = (list) => new Tensor("int64", BigInt64Array.from(list, BigInt), [1, list.length]);
const ids = longs([5, 17, 33, 80, 6, 250, 91, 12]);
const ones = longs(Array(8).fill(1));
const wave = (n) => Float32Array.from({ length: n }, (_, i) => Math.sin(i / 7));
const say = (x) => console.log(JSON.stringify(x));

if (type === "whisper") {
  const model = await AutoModelForSpeechSeq2Seq.from_pretrained(name, options);
  const made = await model.generate({ input_features: new Tensor("float32", wave(80 * 3000), [1, 80, 3000]), max_new_tokens: 8 });
  say(made.tolist()[0].map(Number));
} else if (["t5", "marian"].includes(type)) {
  const model = await AutoModelForSeq2SeqLM.from_pretrained(name, options);
  say((await model.generate({ input_ids: ids, attention_mask: ones, max_new_tokens: 8 })).tolist()[0].map(Number));
} else if (["vit", "convnext"].includes(type)) {
  const model = await AutoModelForImageClassification.from_pretrained(name, options);
  const { logits } = await model({ pixel_values: new Tensor("float32", wave(3 * 64 * 64), [1, 3, 64, 64]) });
  say(Array.from(logits.data, (x) => +x.toFixed(2)));
} else if (type === "bert") {
  const model = await AutoModel.from_pretrained(name, options);
  const { last_hidden_state } = await model({ input_ids: ids, attention_mask: ones, token_type_ids: longs(Array(8).fill(0)) });
  say(Array.from(last_hidden_state.data.slice(0, 8), (x) => +x.toFixed(2)));
} else {
  const model = await AutoModelForCausalLM.from_pretrained(name, options);
  say((await model.generate({ inputs: ids, attention_mask: ones, max_new_tokens: 8 })).tolist()[0].map(Number));
}
