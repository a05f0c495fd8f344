package main

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"strings"
)

// run.py finds the installed program and becomes it.
//
//go:embed run.py
var runPython []byte

// writeWheel packs the programs as scripts of a Python package, which pip puts into the PATH of
// the environment: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
func (r *release) writeWheel(p platform, folder string) error {
	base := "onnxquant-" + r.version
	files, err := binaries(p, folder, base+".data/scripts/")
	if err != nil {
		return err
	}
	documents, err := r.documents(base + ".dist-info/licenses/")
	if err != nil {
		return err
	}
	description := documents[0].data
	for _, d := range documents {
		if strings.HasSuffix(d.name, "/LICENSE") || strings.HasSuffix(d.name, "/licenses.md") {
			files = append(files, d)
		}
	}
	var tags strings.Builder
	for _, tag := range strings.Split(p.wheel, ".") {
		fmt.Fprintf(&tags, "Tag: py3-none-%s\n", tag)
	}
	metadata := fmt.Sprintf(`Metadata-Version: 2.4
Name: onnxquant
Version: %s
Summary: %s
License-Expression: %s
License-File: LICENSE
License-File: licenses.md
Requires-Python: >=3.10
Provides-Extra: ort
Requires-Dist: onnxruntime>=1.16; extra == "ort"
Description-Content-Type: text/markdown

%s`, r.version, summary, licence, description)
	files = append(files,
		file{"onnxquant/__init__.py", nil, false},
		file{"onnxquant/__main__.py", runPython, false},
		file{base + ".dist-info/METADATA", []byte(metadata), false},
		file{base + ".dist-info/WHEEL", []byte("Wheel-Version: 1.0\nGenerator: onnxquant-release\nRoot-Is-Purelib: false\n" + tags.String()), false},
	)
	var record strings.Builder
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
	}
	fmt.Fprintf(&record, "%s.dist-info/RECORD,,\n", base)
	files = append(files, file{base + ".dist-info/RECORD", []byte(record.String()), false})
	data, err := zipped(files, r.time)
	if err != nil {
		return err
	}
	return r.write(base+"-py3-none-"+p.wheel+".whl", data)
}
