package opset

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/graphtext"
)

// BenchmarkRaise raises models of many nodes that all need an adapter. Time
// and memory for a node must not depend on how many there are.
func BenchmarkRaise(b *testing.B) {
	for _, c := range []struct {
		name string
		node func(b *testing.B, i int) string
	}{
		{"Clip", func(b *testing.B, i int) string { return fmt.Sprintf("v%d = Clip<min=%d.5>(v%d)", i+1, -i, i) }},
		{"Softmax", func(b *testing.B, i int) string { return fmt.Sprintf("v%d = Softmax<axis=0>(v%d)", i+1, i) }},
		{"Upsample", func(b *testing.B, i int) string {
			return fmt.Sprintf("v%d = Upsample<scales=[1.0,%d.0]>(v%d)", i+1, i+1, i)
		}},
	} {
		for _, n := range []int{2500, 40000} {
			b.Run(fmt.Sprintf("op=%s/nodes=%d", c.name, n), func(b *testing.B) {
				m := graphtext.Model(b, 8, "v0:float[2,3]", c.node(b, 0), fmt.Sprint("v", n))
				for i := 1; i < n; i++ {
					m.Graph.Node = append(m.Graph.Node, graphtext.Nodes(b, c.node(b, i))...)
				}
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					raised := proto.Clone(m).(*onnxpb.ModelProto)
					b.StartTimer()
					if err := Raise(raised, 21, freshNames()); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/node")
			})
		}
	}
}
