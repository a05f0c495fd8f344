//go:build unix

package capi

import "github.com/ebitengine/purego"

// pathChar is a character of a path in ONNX Runtime's interface.
type pathChar = byte

func pathString(path string) (*pathChar, error) { return cString(path) }

// symbol loads a library and returns the address of a function in it.
func symbol(path, name string) (uintptr, error) {
	library, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return 0, err
	}
	return purego.Dlsym(library, name)
}
