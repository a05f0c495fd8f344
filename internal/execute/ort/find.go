package ort

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
)

const helperName = "onnxquant-ort"

// findHelper looks beside this program first, where the helper has the same version.
func findHelper() (string, error) {
	name := helperName
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if self, err := os.Executable(); err == nil {
		if path := filepath.Join(filepath.Dir(self), name); isFile(path) {
			return path, nil
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return "", errNoHelper
}

// LibraryVariable is the environment variable with the path of the shared library.
const LibraryVariable = "ONNXQUANT_ORT_LIB"

func findLibrary(named string) (string, error) {
	if named == "" {
		named = os.Getenv(LibraryVariable)
	}
	if named != "" {
		path, err := filepath.Abs(named)
		if err == nil && !isFile(path) {
			err = fmt.Errorf("cannot use ONNX Runtime: %s is not a file", named)
		}
		return path, err
	}
	for _, pattern := range usualPlaces() {
		found, _ := filepath.Glob(pattern)
		slices.Sort(found)
		for _, path := range slices.Backward(found) { // the newest version
			if isFile(path) {
				return path, nil
			}
		}
	}
	return "", errors.New("cannot use ONNX Runtime: its shared library was not found; name it by --ort-lib or " + LibraryVariable + " (in the Python package: site-packages/onnxruntime/capi/libonnxruntime.so.*)")
}

// usualPlaces returns glob patterns: the folder of this program, system folders and the
// current Python environment. It never has the working folder, because loading a
// library runs its code.
func usualPlaces() []string {
	names := []string{"libonnxruntime.so", "libonnxruntime.so.*"}
	folders := []string{"/usr/local/lib", "/usr/lib", "/usr/lib64", "/usr/lib/*-linux-gnu", "/opt/onnxruntime/lib", "/opt/onnxruntime*/lib"}
	packages := "lib/python3*/*-packages"
	switch runtime.GOOS {
	case "darwin":
		names = []string{"libonnxruntime.dylib", "libonnxruntime.*.dylib"}
		folders = []string{"/opt/homebrew/lib", "/usr/local/lib"}
	case "windows":
		names = []string{"onnxruntime.dll"}
		folders = []string{filepath.Join(os.Getenv("ProgramFiles"), "onnxruntime", "lib")}
		packages = `Lib\site-packages`
	}
	var all []string
	if self, err := os.Executable(); err == nil {
		all = append(all, filepath.Dir(self))
	}
	all = append(all, folders...)
	for _, prefix := range pythons() {
		all = append(all, filepath.Join(prefix, packages, "onnxruntime", "capi"))
	}
	var patterns []string
	for _, folder := range all {
		for _, name := range names {
			patterns = append(patterns, filepath.Join(folder, name))
		}
	}
	return patterns
}

// pythons lists the prefixes of the current Python installations.
func pythons() []string {
	var prefixes []string
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if prefix := os.Getenv(name); filepath.IsAbs(prefix) {
			prefixes = append(prefixes, prefix)
		}
	}
	for _, name := range []string{"python3", "python"} {
		if path, err := exec.LookPath(name); err == nil && filepath.IsAbs(path) {
			prefixes = append(prefixes, filepath.Dir(filepath.Dir(path)))
		}
	}
	return prefixes
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
