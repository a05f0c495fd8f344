package main

import (
	"archive/zip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// pinned reads the version of ONNX Runtime that the tests run.
func pinned(root string) (string, error) {
	name := filepath.Join(root, "test", "oracle", "requirements.txt")
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`(?m)^onnxruntime==([\d.]+)$`).FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s has no line onnxruntime==VERSION", name)
	}
	return string(found[1]), nil
}

// writeWithRuntime packs an archive with ONNX Runtime's library beside the programs, which find it there. It is in ONNX
// Runtime's package for Python, which pip fetches.
func (r *release) writeWithRuntime(p platform, folder string) error {
	if r.runtime == "" || p.runtime == "" {
		return nil
	}
	dir, err := os.MkdirTemp("", "onnxruntime")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	python, err := withPip(dir)
	if err != nil {
		return err
	}
	cmd := exec.Command(python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--python-version", "3.11",
		"--platform", p.runtime, "--dest", dir, "onnxruntime=="+r.runtime)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("onnxruntime %s for %s: %w", r.runtime, p.runtime, err)
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return fmt.Errorf("pip has fetched %v, %v", wheels, err)
	}
	files, err := runtimeFiles(wheels[0])
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(wheels[0]), err)
	}
	return r.archive(p, folder, "-ort", files)
}

// withPip returns a Python that has pip: the system's, or else one of an environment in dir.
func withPip(dir string) (string, error) {
	if exec.Command("python3", "-m", "pip", "--version").Run() == nil {
		return "python3", nil
	}
	environment := filepath.Join(dir, "venv")
	if out, err := exec.Command("python3", "-m", "venv", environment).CombinedOutput(); err != nil {
		return "", fmt.Errorf("python3 has neither pip nor venv: %w: %s", err, out)
	}
	return filepath.Join(environment, "bin", "python"), nil
}

// runtimeFiles are ONNX Runtime's library, and its licenses in a folder of their own.
func runtimeFiles(wheel string) (files []file, err error) {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	libraries := 0
	for _, f := range z.File {
		dir, base := path.Split(f.Name)
		library := dir == "onnxruntime/capi/" && (base == "onnxruntime.dll" || regexp.MustCompile(`^libonnxruntime\.(so\.[\d.]+|[\d.]+\.dylib)$`).MatchString(base))
		name := base
		switch {
		case library:
			libraries++
		case dir == "onnxruntime/" && (base == "LICENSE" || base == "ThirdPartyNotices.txt"):
			name = "onnxruntime/" + base
		default:
			continue
		}
		data, err := contents(f)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, data, library})
	}
	if libraries != 1 || len(files) != 3 {
		var names []string
		for _, f := range files {
			names = append(names, f.name)
		}
		return nil, fmt.Errorf("want a library and two files of licenses, found %s", strings.Join(names, ", "))
	}
	return files, nil
}

func contents(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
