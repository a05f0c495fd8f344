package modelfile

import (
	"os"
	"path/filepath"
	"testing"

	"onnxquant/internal/onnxpb"
)

// The fingerprint covers external data as long as it is small, and says what it does not cover.
func TestFingerprint(t *testing.T) {
	of := func(dims int64, value byte) Fingerprint {
		t.Helper()
		contents := make([]byte, 4*dims)
		contents[0] = value
		tensor := &onnxpb.TensorProto{
			Name: new("w"), Dims: []int64{dims}, DataType: new(int32(onnxpb.TensorProto_FLOAT)), DataLocation: onnxpb.TensorProto_EXTERNAL.Enum(),
			ExternalData: []*onnxpb.StringStringEntryProto{{Key: new("location"), Value: new("w")}},
		}
		path := writeModel(t, &onnxpb.ModelProto{Graph: &onnxpb.GraphProto{Initializer: []*onnxpb.TensorProto{tensor}}})
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), "w"), contents, 0o666); err != nil {
			t.Fatal(err)
		}
		m, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		f, err := m.Fingerprint()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	a, b := of(100, 1), of(100, 2)
	if a.Model != b.Model || len(a.Data) != 1 || len(b.Data) != 1 || a.Data[0] == b.Data[0] || a.Unhashed != 0 {
		t.Errorf("small external data: %+v and %+v", a, b)
	}
	const many = fewContents/4 + 1
	if a, b = of(many, 1), of(many, 2); a.Model != b.Model || len(a.Data) != 0 || a.Unhashed != 4*many {
		t.Errorf("large external data: %+v and %+v", a, b)
	}
}
