// Loads each dtype of a folder with transformers.js and prints the outputs as JSON:
//
//	node transformers.mjs MODELS NAME DTYPE…
//
// The model reads ids and has the output logits. Its config says it is an encoder, so that
// transformers.js passes inputs on as they are.
import { AutoModel, Tensor, env } from "@huggingface/transformers";

const [models, name, ...dtypes] = process.argv.slice(2);
env.allowRemoteModels = false;
env.localModelPath = models;

const outputs = {};
for (const dtype of dtypes) {
  const model = await AutoModel.from_pretrained(name, { dtype, device: "cpu" });
  const ids = BigInt64Array.from({ length: 24 }, (_, i) => BigInt((i * 37 + 11) % 96));
  const { logits } = await model({ ids: new Tensor("int64", ids, [1, 24]) });
  outputs[dtype] = Array.from(logits.data, Number);
  await model.dispose();
}
console.log(JSON.stringify(outputs));
