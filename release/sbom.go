package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// What SPDX 2.3 has of a document: https://spdx.github.io/spdx-spec/v2.3/
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID        string         `json:"SPDXID"`
		Name      string         `json:"name"`
		Version   string         `json:"versionInfo"`
		Location  string         `json:"downloadLocation"`
		Analyzed  bool           `json:"filesAnalyzed"`
		Concluded string         `json:"licenseConcluded"`
		Declared  string         `json:"licenseDeclared"`
		Copyright string         `json:"copyrightText"`
		Checksums []spdxChecksum `json:"checksums,omitempty"`
		Refs      []spdxRef      `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const unknown = "NOASSERTION"

// writeSBOM lists the modules that the programs for a platform are built of, as they say
// themselves.
func (r *release) writeSBOM(p platform, folder string) error {
	return r.listParts(p, folder, "onnxquant-"+r.version+"-"+p.os+"-"+p.arch, programs, "licenses.md")
}

// listParts writes NAME.spdx.json for programs in a folder, whose licences are in a page of docs.
func (r *release) listParts(p platform, folder, name string, programs []string, page string) error {
	licences, err := r.licences(page)
	if err != nil {
		return err
	}
	doc := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Namespace: "https://spdx.org/spdxdocs/" + name + "-" + r.commit,
		Creation:  spdxCreation{r.time.Format(time.RFC3339), []string{"Tool: onnxquant-release"}},
	}
	listed := map[string]bool{}
	for _, program := range programs {
		path := filepath.Join(folder, p.exe(program))
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		main := newPackage(program, "v"+r.version, licence)
		main.Checksums = []spdxChecksum{{"SHA256", fmt.Sprintf("%x", sha256.Sum256(data))}}
		doc.Packages = append(doc.Packages, main)
		doc.Relationships = append(doc.Relationships, spdxRelationship{doc.ID, "DESCRIBES", main.ID})
		parts := []spdxPackage{newPackage("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "BSD-3-Clause")}
		for _, m := range info.Deps {
			parts = append(parts, newPackage(m.Path, m.Version, licenceOf(licences, m.Path)))
		}
		for _, part := range parts {
			if !listed[part.ID] {
				doc.Packages = append(doc.Packages, part)
				listed[part.ID] = true
			}
			doc.Relationships = append(doc.Relationships, spdxRelationship{main.ID, "DEPENDS_ON", part.ID})
		}
	}
	data, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return r.write(name+".spdx.json", append(data, '\n'))
}

func newPackage(name, version, licence string) spdxPackage {
	if licence == "" {
		licence = unknown
	}
	id := "SPDXRef-Package-" + regexp.MustCompile(`[^A-Za-z0-9.-]`).ReplaceAllString(name, "-")
	return spdxPackage{ID: id, Name: name, Version: version, Location: unknown, Concluded: unknown, Declared: licence, Copyright: unknown,
		Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + name + "@" + version}}}
}

// licenceOf is the licence of a module. The page has packages: that of the module, or the first one in it.
func licenceOf(licences map[string]string, module string) string {
	if known := licences[module]; known != "" {
		return known
	}
	for _, name := range slices.Sorted(maps.Keys(licences)) {
		if strings.HasPrefix(name, module+"/") {
			return licences[name]
		}
	}
	return ""
}

// licences reads the table of a page of docs.
func (r *release) licences(page string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "docs", page))
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\S+) \| (\S+) \|$`).FindAllStringSubmatch(string(text), -1) {
		found[row[1]] = row[2]
	}
	return found, nil
}
