package capi

import "golang.org/x/sys/windows"

// pathChar is a character of a path in ONNX Runtime's interface.
type pathChar = uint16

func pathString(path string) (*pathChar, error) { return windows.UTF16PtrFromString(path) }

// symbol loads a library and returns the address of a function in it. The libraries that it
// needs are looked for in its own folder and in the system's.
func symbol(path, name string) (uintptr, error) {
	library, err := windows.LoadLibraryEx(path, 0, windows.LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR|windows.LOAD_LIBRARY_SEARCH_DEFAULT_DIRS)
	if err != nil {
		return 0, err
	}
	return windows.GetProcAddress(library, name)
}
