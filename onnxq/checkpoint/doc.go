// Package checkpoint reads weights of a model from other files: GGUF files, and safetensors files as Hugging Face's hub has
// them.
//
//	read, err := checkpoint.Read(model, "path/to/folder", nil)
//
// [Read] changes its model: float tensors get their contents from the files. The model is then converted or written like any
// other. Contents are decoded when they are read, piece by piece: no copy is written, and memory is bounded.
//
// # Names
//
// A tensor of the model gets the tensor of the same name. Exporters give many weights other names: the path of the module is
// then taken from the node that reads the weight (/model/layers.0/mlp/up_proj/MatMul reads model.layers.0.mlp.up_proj.weight),
// or from names as onnxruntime-genai's model builder gives (model.layers.0.attn.q_proj.MatMul.weight). qkv_proj and
// gate_up_proj are made of their parts. A document of names comes before all of this.
//
// # Shapes
//
// PyTorch has the weight of a Linear as [N,K], the model mostly as [K,N]: such a weight is transposed. A tensor of the same
// name and shape is taken as it is.
//
// # Types
//
// Floats, and float8 with scales: a tensor NAME_scale or NAME_scale_inv, for the whole weight, for each row, or for blocks of
// 128 × 128 elements, multiplies it.
//
// # Codes
//
// Weights in codes of GPTQ, AWQ, compressed-tensors, bitsandbytes and MLX get contents of package coded: a conversion stores the codes,
// scales and zero points as they are. packedDown, compressed, bytesScaled, tabled, rows127 and affine say how they lie in the files.
// Act-order becomes a Gather before the product: [Read] then changes the graph of the model.
package checkpoint
