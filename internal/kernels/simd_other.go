//go:build !amd64 || purego

package kernels

func quantizeNibbles(dst []byte, x []float32) { quantizeNibblesGo(dst, x) }

func quantizeBytes(dst []byte, x []float32) { quantizeBytesGo(dst, x) }
