package main

import (
	"bytes"
	"fmt"
	"log"
	"net/mail"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// nobody is the maintainer of packages that name none: package managers want one.
const nobody = "onnxquant <onnxquant@localhost>"

// setMaintainer sets whom packages name; "" is nobody.
func (r *release) setMaintainer(name string) error {
	r.maintainer = nobody
	if name == "" {
		log.Print("no MAINTAINER: packages for Debian and RPM name " + nobody)
		return nil
	}
	a, err := mail.ParseAddress(name)
	if err != nil || a.Name == "" {
		return fmt.Errorf("maintainer %q: want a name and an address, such as 'Jane Doe <jane@example.org>'", name)
	}
	r.maintainer = a.Name + " <" + a.Address + ">"
	return nil
}

// writeLinux packs the programs for Debian and for RPM.
func (r *release) writeLinux(p platform, folder string) error {
	if p.os != "linux" {
		return nil
	}
	contents := files.Contents{}
	add := func(from, to string, mode os.FileMode) {
		contents = append(contents, &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: r.time}})
	}
	for _, program := range programs {
		add(filepath.Join(folder, program), "/usr/bin/"+program, 0o755)
	}
	for _, name := range []string{"README.md", "LICENSE", "CHANGELOG.md", "docs/licenses.md"} {
		add(filepath.Join(r.root, name), "/usr/share/doc/onnxquant/"+filepath.Base(name), 0o644)
	}
	pages, err := filepath.Glob(filepath.Join(r.pages, "man", "*"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		add(page, "/usr/share/man/man1/"+filepath.Base(page), 0o644)
	}
	for shell, to := range map[string]string{
		"bash": "/usr/share/bash-completion/completions/onnxquant",
		"zsh":  "/usr/share/zsh/site-functions/_onnxquant",
		"fish": "/usr/share/fish/vendor_completions.d/onnxquant.fish",
	} {
		add(filepath.Join(r.pages, "completions", "onnxquant."+shell), to, 0o644)
	}
	for _, format := range []string{"deb", "rpm"} {
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: "onnxquant", Arch: p.arch, Platform: "linux", Version: r.version, VersionSchema: "semver", Release: "1",
			Maintainer: r.maintainer, Description: summary, License: licence,
			Section: "utils", Priority: "optional", MTime: r.time,
			Overridables: nfpm.Overridables{Contents: contents, RPM: nfpm.RPM{BuildHost: "localhost"}},
		})
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return err
		}
		var buf bytes.Buffer
		if err := packager.Package(info, &buf); err != nil {
			return err
		}
		if err := r.write(packager.ConventionalFileName(info), buf.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
