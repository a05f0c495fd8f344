package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	rpmutils "github.com/sassoftware/go-rpmutils"
)

// all are the platforms to build for: one alone in a short test.
func all() []platform {
	if !testing.Short() {
		return platforms
	}
	return slices.DeleteFunc(slices.Clone(platforms), func(p platform) bool { return !here(p) })
}

func here(p platform) bool { return p.os == runtime.GOOS && p.arch == runtime.GOARCH }

// output is what a command prints, standard error included.
func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
}

const maintainer = "Jane Doe <jane@example.org>"

func TestMaintainer(t *testing.T) {
	r := &release{}
	for _, name := range []string{"Jane Doe", "jane@example.org", "Jane Doe <jane>"} {
		if err := r.setMaintainer(name); err == nil || !strings.Contains(err.Error(), "want a name and an address") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := r.setMaintainer(""); err != nil || r.maintainer != nobody {
		t.Errorf("none: %q, %v", r.maintainer, err)
	}
}

// A release of the commit as it is here, packed twice.
func TestRelease(t *testing.T) {
	r, err := newRelease("..", filepath.Join(t.TempDir(), "dist"), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.setMaintainer(maintainer); err != nil {
		t.Fatal(err)
	}
	if r.runtime, err = pinned(r.root); err != nil {
		t.Fatal(err)
	}
	r.cloud = here // the others take minutes
	if err := r.build(all()); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("sums", func(t *testing.T) { checkSums(t, r.out, string(sums)) })
	t.Run("archives", func(t *testing.T) { checkArchives(t, r) })
	t.Run("with ONNX Runtime", func(t *testing.T) { checkWithRuntime(t, r) })
	t.Run("cloud", func(t *testing.T) { checkCloud(t, r) })
	t.Run("sbom", func(t *testing.T) { checkSBOM(t, r) })
	t.Run("static", func(t *testing.T) { checkStatic(t, r) })
	t.Run("wheel", func(t *testing.T) { checkWheel(t, r) })
	t.Run("npm", func(t *testing.T) { checkNPM(t, r) })
	t.Run("deb", func(t *testing.T) { checkDebian(t, r) })
	t.Run("rpm", func(t *testing.T) { checkRPM(t, r) })
	t.Run("reproducible", func(t *testing.T) {
		again := *r
		again.out = filepath.Join(t.TempDir(), "again")
		if err := again.build(all()); err != nil {
			t.Fatal(err)
		}
		second, err := os.ReadFile(filepath.Join(again.out, "SHA256SUMS"))
		if err != nil || !bytes.Equal(sums, second) {
			t.Errorf("error %v, or other bytes the second time", err)
		}
	})
}

func checkSums(t *testing.T, dir, sums string) {
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(sums, "\n"); n != len(files)-1 {
		t.Errorf("%d sums of %d files", n, len(files)-1)
	}
	for line := range strings.Lines(sums) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			t.Errorf("%s: error %v, or another sum", name, err)
		}
	}
}

// unpack unpacks a .tar.gz or .zip into a new folder.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, mode os.FileMode, r io.Reader) {
		path := filepath.Join(dir, name)
		content, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, content, mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if strings.HasSuffix(archive, ".zip") {
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			write(f.Name, f.Mode(), r)
		}
		return dir
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		write(h.Name, h.FileInfo().Mode(), r)
	}
}

func checkArchives(t *testing.T, r *release) {
	for _, p := range all() {
		name := "onnxquant-" + r.version + "-" + p.os + "-" + p.arch
		ending := ".tar.gz"
		if p.os == "windows" {
			ending = ".zip"
		}
		dir := filepath.Join(unpack(t, filepath.Join(r.out, name+ending)), name)
		for _, file := range []string{p.exe("onnxquant"), p.exe("onnxquant-ort"), "README.md", "LICENSE", "CHANGELOG.md", "licenses.md", "man/onnxquant.1", "man/onnxquant-verify.1", "completions/onnxquant.zsh"} {
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
				t.Error(err)
			}
		}
		if here(p) {
			checkRuns(t, filepath.Join(dir, p.exe("onnxquant")))
		}
	}
}

// checkRuntime measures a model in ONNX Runtime, which nothing but the place of the program leads to.
func checkRuntime(t *testing.T, command string) {
	t.Helper()
	model := "../testmodels/tinygpt/model.onnx"
	cmd := exec.Command(command, "bench", "--json", "--seconds", "1", model)
	cmd.Env = []string{"PATH=", "HOME=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"p50_ms"`) {
		t.Errorf("%s bench: %v: %s", command, err, out)
	}
}

// An archive with ONNX Runtime finds it beside the programs.
func checkWithRuntime(t *testing.T, r *release) {
	need(t, "python3")
	for _, p := range all() {
		name := "onnxquant-" + r.version + "-" + p.os + "-" + p.arch + "-ort"
		if !here(p) || p.runtime == "" {
			continue
		}
		dir := filepath.Join(unpack(t, filepath.Join(r.out, name+map[bool]string{true: ".zip", false: ".tar.gz"}[p.os == "windows"])), name)
		if _, err := os.Stat(filepath.Join(dir, "onnxruntime", "ThirdPartyNotices.txt")); err != nil {
			t.Error(err)
		}
		checkRuntime(t, filepath.Join(dir, p.exe("onnxquant")))
	}
}

// checkCloud unpacks the archive with onnxquant-cloud, and asks for its version.
func checkCloud(t *testing.T, r *release) {
	for _, p := range slices.DeleteFunc(slices.Clone(platforms), func(p platform) bool { return !here(p) }) {
		name := "onnxquant-cloud-" + r.version + "-" + p.os + "-" + p.arch
		dir := filepath.Join(unpack(t, filepath.Join(r.out, name+map[bool]string{true: ".zip", false: ".tar.gz"}[p.os == "windows"])), name)
		for _, file := range []string{"README.md", "LICENSE", "licenses.md"} {
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
				t.Error(err)
			}
		}
		program := filepath.Join(dir, p.exe("onnxquant-cloud"))
		if says := output(t, ".", program, "--version"); !strings.HasPrefix(says, "onnxquant-cloud v0.0.0 ") {
			t.Errorf("it says %s", says)
		}
		checkParts(t, filepath.Join(r.out, name+".spdx.json"))
	}
}

// checkRuns converts a model, and runs both.
func checkRuns(t *testing.T, command string, args ...string) {
	t.Helper()
	if says := output(t, ".", command, append(args, "--version")...); !strings.HasPrefix(says, "onnxquant v0.0.0 ") {
		t.Errorf("%s says %s", command, says)
	}
	in, out := "../testmodels/tinygpt/model.onnx", filepath.Join(t.TempDir(), "out.onnx")
	output(t, ".", command, append(args, "--quiet", in, out)...)
	output(t, ".", command, append(args, "verify", "--engine", "go", in, out)...)
}

func checkSBOM(t *testing.T, r *release) {
	for _, p := range all() {
		path := filepath.Join(r.out, "onnxquant-"+r.version+"-"+p.os+"-"+p.arch+".spdx.json")
		doc := checkParts(t, path)
		if !slices.ContainsFunc(doc.Packages, func(p spdxPackage) bool { return p.Name == "gonum.org/v1/gonum" }) {
			t.Error("gonum is not listed")
		}
		if here(p) {
			checkSPDX(t, path)
		}
	}
}

// checkParts reads a list of parts, whose licences must be known.
func checkParts(t *testing.T, path string) (doc spdxDocument) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	for _, part := range doc.Packages {
		if part.Declared == unknown {
			t.Errorf("the licence of %s is not known", part.Name)
		}
		if strings.HasPrefix(part.Name, "gorgonia.org/") {
			t.Errorf("%s is part of a release", part.Name)
		}
	}
	return doc
}

// checkSPDX asks the tools of SPDX whether a document is valid.
func checkSPDX(t *testing.T, path string) {
	need(t, "python3")
	bin := newVenv(t)
	output(t, ".", filepath.Join(bin, "pip"), "install", "--quiet", "--disable-pip-version-check", "spdx-tools==0.8.5")
	output(t, ".", filepath.Join(bin, "pyspdxtools"), "--infile", path)
}

// newVenv makes a virtual environment of Python and returns the folder of its programs.
func newVenv(t *testing.T) string {
	t.Helper()
	venv := filepath.Join(t.TempDir(), "venv")
	output(t, ".", "python3", "-m", "venv", venv)
	if runtime.GOOS == "windows" {
		return filepath.Join(venv, "Scripts")
	}
	return filepath.Join(venv, "bin")
}

// The image of the Dockerfile has nothing but the command, and a folder for temporary files.
func checkStatic(t *testing.T, r *release) {
	if runtime.GOOS != "linux" {
		t.Skip("images are made on Linux")
	}
	name := "onnxquant-" + r.version + "-linux-" + runtime.GOARCH
	command := filepath.Join(unpack(t, filepath.Join(r.out, name+".tar.gz")), name, "onnxquant")
	f, err := elf.Open(command)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, part := range f.Progs {
		if part.Type == elf.PT_INTERP {
			t.Error("it is linked dynamically")
		}
	}
	runAlone(t, command)
}

func checkWheel(t *testing.T, r *release) {
	need(t, "python3")
	wheels, err := filepath.Glob(filepath.Join(r.out, "*.whl"))
	if err != nil || len(wheels) != len(all()) {
		t.Fatalf("wheels %v, %v", wheels, err)
	}
	bin := newVenv(t)
	// pip takes the wheel that fits.
	output(t, ".", filepath.Join(bin, "pip"), "install", "--no-index", "--find-links", r.out, "onnxquant")
	checkRuns(t, filepath.Join(bin, "onnxquant"))
	checkRuns(t, filepath.Join(bin, "python"), "-m", "onnxquant")
	if _, err := os.Stat(filepath.Join(bin, platform{os: runtime.GOOS}.exe("onnxquant-ort"))); err != nil {
		t.Error(err)
	}
	output(t, ".", filepath.Join(bin, "pip"), "check")
	output(t, ".", filepath.Join(bin, "pip"), "install", "--quiet", "--find-links", r.out, "onnxquant[ort]")
	checkRuntime(t, filepath.Join(bin, platform{os: runtime.GOOS}.exe("onnxquant")))
}

func checkNPM(t *testing.T, r *release) {
	need(t, "npm", "node")
	dir := t.TempDir()
	args := []string{"install", "--offline", "--no-audit", "--no-fund", "--cache", filepath.Join(dir, "cache"), "--omit", "optional"}
	for _, p := range platforms {
		if here(p) {
			args = append(args, filepath.Join(r.out, "onnxquant-"+p.npm+"-"+r.version+".tgz"))
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"private": true}`), 0o644); err != nil {
		t.Fatal(err)
	}
	output(t, dir, "npm", append(args, filepath.Join(r.out, "onnxquant-"+r.version+".tgz"))...)
	checkRuns(t, filepath.Join(dir, "node_modules", ".bin", "onnxquant"))
}

func checkDebian(t *testing.T, r *release) {
	need(t, "dpkg-deb")
	dir := t.TempDir()
	path := filepath.Join(r.out, "onnxquant_"+r.version+"-1_"+runtime.GOARCH+".deb")
	if got := strings.TrimSpace(output(t, ".", "dpkg-deb", "-f", path, "Maintainer")); got != maintainer {
		t.Errorf("the maintainer is %q", got)
	}
	output(t, ".", "dpkg-deb", "-x", path, dir)
	checkUsr(t, filepath.Join(dir, "usr"))
}

func checkRPM(t *testing.T, r *release) {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	f, err := os.Open(filepath.Join(r.out, "onnxquant-"+r.version+"-1."+arch+".rpm"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pack, err := rpmutils.ReadRpm(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pack.Header.GetString(rpmutils.PACKAGER); err != nil || got != maintainer {
		t.Errorf("the packager is %q, %v", got, err)
	}
	dir := t.TempDir()
	if err := pack.ExpandPayload(dir); err != nil {
		t.Fatal(err)
	}
	list, err := pack.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range list { // ExpandPayload does not set them
		if err := os.Chmod(filepath.Join(dir, file.Name()), os.FileMode(file.Mode()).Perm()); err != nil {
			t.Fatal(err)
		}
	}
	checkUsr(t, filepath.Join(dir, "usr"))
}

// checkUsr runs what a package for Linux installs.
func checkUsr(t *testing.T, usr string) {
	t.Helper()
	checkRuns(t, filepath.Join(usr, "bin", "onnxquant"))
	for _, file := range []string{"bin/onnxquant-ort", "share/man/man1/onnxquant.1", "share/bash-completion/completions/onnxquant", "share/doc/onnxquant/LICENSE"} {
		if _, err := os.Stat(filepath.Join(usr, file)); err != nil {
			t.Error(err)
		}
	}
}
