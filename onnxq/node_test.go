package onnxq_test

import (
	"testing"

	"onnxquant/onnxq"
)

// A weight with a number for a name has the name of a node that reads it.
func TestNode(t *testing.T) {
	m, err := onnxq.Open("../testmodels/tinygpt/model.onnx")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p, err := m.Plan(onnxq.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, w := range p.Tensors {
		got[w.Name] = w.Node
	}
	for name, want := range map[string]string{"onnx::MatMul_541": "/head/MatMul", "onnx::MatMul_473": "/blocks.0/qkv/MatMul", "tok.weight": ""} {
		if node, ok := got[name]; !ok || node != want {
			t.Errorf("%s: node %q, want %q", name, node, want)
		}
	}
}
