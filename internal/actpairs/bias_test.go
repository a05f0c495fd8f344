package actpairs

import (
	"errors"
	"testing"

	"onnxquant/internal/modelfile"
)

type unreadable struct{ error }

func (u unreadable) ReadAt([]byte, int64) (int, error) { return 0, u.error }

// A bias that cannot be read has no elements.
func TestUnreadableBias(t *testing.T) {
	broken := errors.New("broken")
	b := &Bias{X: &Tensor{}, from: modelfile.Computed(unreadable{broken}, 8)}
	if moved, err := b.Shifted([]float32{10, 20}); !errors.Is(err, broken) || moved != nil {
		t.Errorf("%v, %v", moved, err)
	}
}
