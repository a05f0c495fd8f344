package main

import (
	"os"
	"path/filepath"
)

// cloudProgram reads and writes objects of clouds. Its libraries are larger than the other programs together, so it has archives of
// its own.
const cloudProgram = "onnxquant-cloud"

// writeCloud builds onnxquant-cloud, and packs it with its licences and the list of its parts.
func (r *release) writeCloud(p platform, folder string) error {
	if r.cloud == nil || !r.cloud(p) {
		return nil
	}
	name := cloudProgram + "-" + r.version + "-" + p.os + "-" + p.arch
	program := filepath.Join(folder, p.exe(cloudProgram))
	if err := r.compileOne(p, filepath.Join(r.root, "cmd", cloudProgram), ".", program); err != nil {
		return err
	}
	var files []file
	for _, f := range []struct {
		path, name string
		executable bool
	}{
		{program, p.exe(cloudProgram), true},
		{filepath.Join(r.root, "LICENSE"), "LICENSE", false},
		{filepath.Join(r.root, "docs", "remote.md"), "README.md", false},
		{filepath.Join(r.root, "docs", cloudLicences), "licenses.md", false},
	} {
		data, err := os.ReadFile(f.path)
		if err != nil {
			return err
		}
		files = append(files, file{name + "/" + f.name, data, f.executable})
	}
	if err := r.pack(p, name, files); err != nil {
		return err
	}
	return r.listParts(p, folder, name, []string{cloudProgram}, cloudLicences)
}

// cloudLicences is the page with the licences of the libraries of onnxquant-cloud.
const cloudLicences = "licenses-cloud.md"
