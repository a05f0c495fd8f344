package ggufmodel

import (
	"slices"

	"onnxquant/formats/gguf"
	"onnxquant/internal/graph"
)

// metadata returns the key-value pairs of the file.
func (p *Plan) metadata(chosen *mix) []gguf.KeyValue {
	proto := p.graph.File.Proto
	kv := []gguf.KeyValue{{Key: "general.architecture", Value: "onnx"}}
	add := func(key, value string) {
		if value != "" {
			kv = append(kv, gguf.KeyValue{Key: key, Value: value})
		}
	}
	add("general.name", proto.GetGraph().GetName())
	add("general.description", proto.GetDocString())
	kv = append(kv, gguf.KeyValue{Key: "general.file_type", Value: chosen.number},
		gguf.KeyValue{Key: "general.quantization_version", Value: uint32(2)})
	add("onnx.producer_name", proto.GetProducerName())
	add("onnx.producer_version", proto.GetProducerVersion())
	add("onnx.domain", proto.GetDomain())
	kv = append(kv, gguf.KeyValue{Key: "onnx.opset", Value: uint32(graph.Opset(proto))})
	var keys, values, transposed []string
	for _, e := range proto.MetadataProps {
		keys, values = append(keys, e.GetKey()), append(values, e.GetValue())
	}
	if len(keys) > 0 {
		kv = append(kv, gguf.KeyValue{Key: "onnx.metadata.keys", Value: keys}, gguf.KeyValue{Key: "onnx.metadata.values", Value: values})
	}
	for _, t := range p.Tensors {
		if t.Transposed {
			transposed = append(transposed, t.Name)
		}
	}
	if len(transposed) > 0 {
		kv = append(kv, gguf.KeyValue{Key: "onnx.transposed", Value: transposed})
	}
	for _, own := range p.opts.Metadata {
		if i := slices.IndexFunc(kv, func(e gguf.KeyValue) bool { return e.Key == own.Key }); i >= 0 {
			kv[i] = own
		} else {
			kv = append(kv, own)
		}
	}
	return kv
}
