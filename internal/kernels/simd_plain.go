//go:build (!amd64 && !arm64) || purego

package kernels

func addMultiple(y []float32, factor float32, x []float32) { addMultipleGo(y, factor, x) }

func multiplyTile(c []float32, stride int, a, b []float32) { multiplyTileGo(c, stride, a, b) }
