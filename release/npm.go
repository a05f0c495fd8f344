package main

import (
	_ "embed"
	"encoding/json"
	"strings"
)

// run.js starts the program of the package for the platform.
//
//go:embed run.js
var runNode []byte

// manifest is what npm needs of a package.json.
type manifest struct {
	Name        string            `json:"name"`
	Version     string            `json:"version"`
	Description string            `json:"description"`
	License     string            `json:"license"`
	Bin         map[string]string `json:"bin,omitempty"`
	OS          []string          `json:"os,omitempty"`
	CPU         []string          `json:"cpu,omitempty"`
	Optional    map[string]string `json:"optionalDependencies,omitempty"`
}

// writeNPM packs what finds the program. npm installs the one package of the optional ones that
// fits the platform.
func (r *release) writeNPM() error {
	m := manifest{Name: "onnxquant", Bin: map[string]string{"onnxquant": "run.js"}, Optional: map[string]string{}}
	for _, p := range platforms {
		m.Optional["onnxquant-"+p.npm] = r.version
	}
	return r.npmPackage(m, []file{{"package/run.js", runNode, true}})
}

// writePlatformNPM packs the programs for a platform.
func (r *release) writePlatformNPM(p platform, folder string) error {
	files, err := binaries(p, folder, "package/bin/")
	if err != nil {
		return err
	}
	system, cpu, _ := strings.Cut(p.npm, "-")
	return r.npmPackage(manifest{Name: "onnxquant-" + p.npm, OS: []string{system}, CPU: []string{cpu}}, files)
}

func (r *release) npmPackage(m manifest, files []file) error {
	m.Version, m.Description, m.License = r.version, summary, licence
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	documents, err := r.documents("package/")
	if err != nil {
		return err
	}
	files = append([]file{{"package/package.json", append(data, '\n'), false}}, append(files, documents...)...)
	packed, err := tarred(files, r.time)
	if err != nil {
		return err
	}
	return r.write(m.Name+"-"+m.Version+".tgz", packed)
}
