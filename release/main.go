// Command release builds everything that a release consists of, from the tag of the commit that
// is checked out, into a folder:
//
//   - for each platform an archive, a Python wheel and an npm package, all with the two programs; in archives
//     also manual pages and completions of shells
//   - packages for Debian and for RPM
//   - with -cloud, for each platform an archive of onnxquant-cloud, which is a module of its own
//   - a list of what the programs are built of (SPDX)
//   - SHA256SUMS
//
// The same commit and the same Go give the same bytes.
//
//	go run . [-snapshot] [-out ../dist] [-maintainer 'Name <name@example.org>']
//
// It is a module of its own, so that what it needs is no dependency of onnxquant.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// platform is a system and an architecture, in the words of those who pack for it.
type platform struct {
	os, arch string // Go's
	wheel    string // Python's tag
	npm      string // Node's process.platform and process.arch
	runtime  string // tag of ONNX Runtime's package for Python; "": there is none
}

var platforms = []platform{
	{"linux", "amd64", "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64", "linux-x64", "manylinux_2_28_x86_64"},
	{"linux", "arm64", "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64", "linux-arm64", "manylinux_2_28_aarch64"},
	{"darwin", "amd64", "macosx_12_0_x86_64", "darwin-x64", ""},
	{"darwin", "arm64", "macosx_12_0_arm64", "darwin-arm64", "macosx_14_0_arm64"},
	{"windows", "amd64", "win_amd64", "win32-x64", "win_amd64"},
	{"windows", "arm64", "win_arm64", "win32-arm64", "win_arm64"},
}

// programs are what is released: the command, and the program with which verify runs ONNX
// Runtime.
var programs = []string{"onnxquant", "onnxquant-ort"}

// exe returns the name of a program's file.
func (p platform) exe(program string) string {
	if p.os == "windows" {
		return program + ".exe"
	}
	return program
}

// release is what is being built.
type release struct {
	root    string // of the repository
	out     string
	version string    // without v
	commit  string    // of the repository
	time    time.Time // of the commit; files have it
	// maintainer is whom packages for Debian and RPM name, as Name <address>.
	maintainer string
	runtime    string // version of ONNX Runtime that an archive brings along; "": none does
	pages      string // the folder with manual pages and completions

	cloud func(platform) bool // for which platforms an archive with onnxquant-cloud is made; nil: none
}

const (
	summary = "Quantizes the weights of ONNX models"
	licence = "Apache-2.0"
)

func main() {
	log.SetFlags(0)
	snapshot := flag.Bool("snapshot", false, "build from any commit, clean or not, as version 0.0.0")
	out := flag.String("out", "../dist", "the `FOLDER` to write to, which is replaced")
	maintainer := flag.String("maintainer", "", "`NAME <ADDRESS>` of who maintains the packages for Debian and RPM")
	withRuntime := flag.Bool("ort", false, "also pack archives with the ONNX Runtime that the tests run")
	withCloud := flag.Bool("cloud", false, "also pack archives of onnxquant-cloud")
	flag.Parse()
	r, err := newRelease("..", *out, *snapshot)
	if err == nil && *withRuntime {
		r.runtime, err = pinned("..")
	}
	if err == nil {
		if *withCloud {
			r.cloud = func(platform) bool { return true }
		}
		err = r.setMaintainer(*maintainer)
	}
	if err == nil {
		err = r.build(platforms)
	}
	if err != nil {
		log.Fatal("release: ", err)
	}
}

func newRelease(root, out string, snapshot bool) (*release, error) {
	r := &release{version: "0.0.0"}
	var err error
	if r.root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	if r.out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	if r.commit, err = r.git("rev-parse", "HEAD"); err != nil {
		return nil, err
	}
	seconds, err := r.git("log", "-1", "--format=%ct")
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, err
	}
	r.time = time.Unix(n, 0).UTC()
	if snapshot {
		return r, nil
	}
	tag, err := r.git("describe", "--tags", "--exact-match", "--dirty")
	if err != nil || !regexp.MustCompile(`^v\d+\.\d+\.\d+$`).MatchString(tag) {
		return nil, fmt.Errorf("the commit needs a tag such as v0.1.0, and no changes (-snapshot builds any): %s %v", tag, err)
	}
	r.version = tag[1:]
	changes, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	if !strings.Contains(string(changes), "\n## "+tag) {
		return nil, fmt.Errorf("CHANGELOG.md has no section %s", tag)
	}
	return r, nil
}

func (r *release) git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.root
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

func (r *release) build(list []platform) error {
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	bin, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	if err := r.writePages(filepath.Join(bin, "pages")); err != nil {
		return err
	}
	if err := r.writeNPM(); err != nil {
		return err
	}
	for _, p := range list {
		log.Printf("%s %s", p.os, p.arch)
		folder := filepath.Join(bin, p.os+"-"+p.arch)
		if err := r.compile(p, folder); err != nil {
			return err
		}
		for _, pack := range []func(platform, string) error{r.writeArchive, r.writeWithRuntime, r.writeCloud, r.writeWheel, r.writePlatformNPM, r.writeLinux, r.writeSBOM} {
			if err := pack(p, folder); err != nil {
				return err
			}
		}
	}
	return r.writeSums()
}

// compile builds the programs for a platform into a folder.
func (r *release) compile(p platform, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, program := range programs {
		if err := r.compileOne(p, r.root, "./cmd/"+program, filepath.Join(folder, p.exe(program))); err != nil {
			return err
		}
	}
	return nil
}

// compileOne builds a program of the module in a folder.
func (r *release) compileOne(p platform, module, program, to string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=v"+r.version, "-o", to, program)
	cmd.Dir, cmd.Stderr = module, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s for %s %s: %w", filepath.Base(to), p.os, p.arch, err)
	}
	return nil
}

func (r *release) writeSums() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(r.out, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), f.Name())
	}
	return r.write("SHA256SUMS", []byte(sums.String()))
}

// write writes a file of the release.
func (r *release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}
