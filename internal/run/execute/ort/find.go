package ort

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"onnxquant/internal/process"
)

const helperName = "onnxquant-ort"

func findHelper() (string, error) {
	if path, ok := process.Beside(helperName); ok {
		return path, nil
	}
	return "", errors.New("cannot use ONNX Runtime: put the program " + helperName + ", which releases and go install ./cmd/... bring along, beside onnxquant or on the PATH")
}

// LibraryVariable is the environment variable with the path of the shared library.
const LibraryVariable = "ONNXQUANT_ORT_LIB"

func findLibrary(ctx context.Context, named string) (string, error) {
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
	for _, folders := range []func(context.Context) []string{ownFolder, environments, systemFolders, pythonFolders} {
		for _, folder := range folders(ctx) {
			if path, ok := newest(folder); ok {
				return path, nil
			}
		}
	}
	if ctx.Err() != nil { // looking was stopped
		return "", context.Cause(ctx)
	}
	return "", errors.New("cannot use ONNX Runtime: its shared library was not found; install it by 'pip install onnxruntime', or name the library by --ort-lib or " + LibraryVariable)
}

// newest returns the library of the latest version in a folder. It is an absolute one, never
// the working folder, because loading a library runs its code.
func newest(folder string) (path string, ok bool) {
	if !filepath.IsAbs(folder) {
		return "", false
	}
	names := []string{"libonnxruntime.so.*", "libonnxruntime.so"}
	switch runtime.GOOS {
	case "darwin":
		names = []string{"libonnxruntime.*.dylib", "libonnxruntime.dylib"}
	case "windows":
		names = []string{"onnxruntime.dll"}
	}
	for _, name := range names {
		found, _ := filepath.Glob(filepath.Join(folder, name))
		slices.SortFunc(found, compareVersions)
		for _, path := range slices.Backward(found) {
			if isFile(path) {
				return path, true
			}
		}
	}
	return "", false
}

// compareVersions compares paths, the numbers in them by their values.
func compareVersions(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
}

// ownFolder is that of this program, and the Python environment that pip put the program into.
func ownFolder(context.Context) []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	folder := filepath.Dir(self)
	return append([]string{folder}, packagesOf(filepath.Dir(folder))...)
}

// environments lists the folders of the Python environments that are active.
func environments(context.Context) (all []string) {
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if folder := os.Getenv(name); folder != "" {
			all = append(all, packagesOf(folder)...)
		}
	}
	return all
}

// packagesOf lists the folders of ONNX Runtime in a Python environment.
func packagesOf(environment string) []string {
	packages := "lib/python3*/site-packages"
	if runtime.GOOS == "windows" {
		packages = `Lib\site-packages`
	}
	found, _ := filepath.Glob(filepath.Join(environment, packages, packageFolder))
	return found
}

// packageFolder is where a Python package has the library.
var packageFolder = filepath.Join("onnxruntime", "capi")

func systemFolders(context.Context) []string {
	patterns := []string{"/usr/local/lib", "/usr/lib", "/usr/lib64", "/usr/lib/*-linux-gnu", "/opt/onnxruntime*/lib"}
	switch runtime.GOOS {
	case "darwin":
		patterns = []string{"/opt/homebrew/lib", "/usr/local/lib"}
	case "windows":
		patterns = []string{filepath.Join(os.Getenv("ProgramFiles"), "onnxruntime", "lib")}
	}
	var all []string
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern)
		all = append(all, found...)
	}
	return all
}

// pythonFolders asks the Pythons on the PATH for their package folders. The Pythons run no code of the
// packages or of the working folder.
func pythonFolders(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var all []string
	for _, name := range []string{"python3", "python"} {
		out, _ := exec.CommandContext(ctx, name, "-I", "-c", `import site, sys; print(*sys.path, site.getusersitepackages(), sep="\n")`).Output()
		for line := range strings.Lines(string(out)) {
			all = append(all, filepath.Join(strings.TrimSpace(line), packageFolder))
		}
	}
	return all
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
