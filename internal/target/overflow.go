package target

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

// SumsOverflow reports whether ONNX Runtime has 16 bits for a sum of two products of 8-bit codes here, which is not enough for
// weights of int8: on x86 processors without VNNI.
var SumsOverflow = runtime.GOARCH == "amd64" && !cpu.X86.HasAVX512VNNI && !cpu.X86.HasAVXVNNI
