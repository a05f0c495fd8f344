// Package attest says in the words of supply chains how a file was made: an in-toto Statement v1
// with a SLSA provenance v1 predicate.
//
// A [Made] goes in: the files that were written, what they were made from, and with which options. [Made.Statement]
// returns the JSON. It has hashes of whole files, names without folders, and no time: the same
// conversion gives the same bytes. It is not signed; that is for the user's own tools and keys.
package attest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"path"
	"path/filepath"
)

// Suffix is the end of the name of a statement's file beside what it is about.
const Suffix = ".intoto.json"

// Types of the statement and of its parts.
const (
	StatementType = "https://in-toto.io/Statement/v1"
	PredicateType = "https://slsa.dev/provenance/v1"
	BuildType     = "urn:onnxquant:conversion:v1" // docs/batch.md describes it
)

// Made says how files were made.
type Made struct {
	Version string // of this program; "": unknown
	Command string // such as convert
	Options string // what changed the output, as the record in the model has it
	Outputs []File // the model first
	Model   []File // the model that was converted, and its external data
	Data    []File // calibration data and other files that options name
	Origin  string // where Model came from, a URL; "": from a file
}

// Statement returns the statement as JSON.
func (m Made) Statement() ([]byte, error) {
	materials := make([]resource, 0, len(m.Model)+len(m.Data))
	for i, f := range m.Model {
		r := resourceOf(f, "model")
		if i > 0 {
			r.Annotations["role"] = "external data"
		} else {
			r.URI = m.Origin
		}
		materials = append(materials, r)
	}
	for _, f := range m.Data {
		materials = append(materials, resourceOf(f, "data"))
	}
	s := statement{Type: StatementType, PredicateType: PredicateType}
	for _, f := range m.Outputs {
		s.Subject = append(s.Subject, resourceOf(f, ""))
	}
	version := cmp.Or(m.Version, "unknown")
	s.Predicate.BuildDefinition = buildDefinition{
		BuildType:            BuildType,
		ExternalParameters:   parameters{Command: m.Command, Options: m.Options},
		ResolvedDependencies: materials,
	}
	s.Predicate.RunDetails.Builder = builder{ID: "urn:onnxquant:" + version, Version: map[string]string{"onnxquant": version}}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(s)
	return b.Bytes(), err
}

func resourceOf(f File, role string) resource {
	r := resource{Name: path.Base(filepath.ToSlash(f.Path)), Digest: map[string]string{"sha256": f.SHA256}}
	if role != "" {
		r.Annotations = map[string]string{"role": role}
	}
	return r
}

// A statement is an in-toto Statement v1, with the names of its specification.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     predicate  `json:"predicate"`
}

// A resource is a ResourceDescriptor of in-toto.
type resource struct {
	Name        string            `json:"name"`
	URI         string            `json:"uri,omitempty"`
	Digest      map[string]string `json:"digest"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type predicate struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	BuildType            string     `json:"buildType"`
	ExternalParameters   parameters `json:"externalParameters"`
	ResolvedDependencies []resource `json:"resolvedDependencies"`
}

type parameters struct {
	Command string `json:"command"`
	Options string `json:"options"`
}

type runDetails struct {
	Builder builder `json:"builder"`
}

type builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version"`
}
