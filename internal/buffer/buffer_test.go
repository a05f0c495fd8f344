package buffer

import (
	"runtime"
	"testing"
	"unsafe"
)

func TestGrow(t *testing.T) {
	grow[byte](t)
	grow[float32](t)
	grow[[3]byte](t)
	grow[struct{}](t)
}

func grow[T any](t *testing.T) {
	var s []T
	for _, n := range []int64{0, 1, 1000, 1 << 18, 1<<19 + 1, 1 << 20, 1<<21 + 7, 3} {
		room := int64(cap(s))
		Grow(&s, n)
		if int64(len(s)) != n {
			t.Fatalf("%T: %d elements, want %d", s, len(s), n)
		}
		if n > 0 && n <= room && int64(cap(s)) != room {
			t.Errorf("%T: %d elements had room in %d, and have other memory", s, n, room)
		}
		clear(s)
		size := int64(unsafe.Sizeof(*new(T)))
		if at := uintptr(unsafe.Pointer(unsafe.SliceData(s))); runtime.GOOS == "linux" && n > room && n*size >= 1<<20 && size&(size-1) == 0 && at%(2<<20) != 0 {
			t.Errorf("%T: %d elements do not begin where a huge page does", s, n)
		}
	}
}
