// Package provenance records in a model what was done to it: which tool made it, with which
// options, and from what.
//
// The record is a JSON list of steps, the last one the newest, in the metadata_props of the
// model:
//
//	[{"tool":"onnxquant","version":"v1.2.0","command":"convert","options":"--bits 4",
//	  "input":{"bytes":7583112,"sha256":"9f86d0…"}}]
//
// It does not depend on names of files, nor on the time, so the same conversion gives the same
// bytes.
package provenance

import (
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/spec"
)

// Key is the key of the record in metadata_props.
const Key = "onnxquant.provenance"

// InputOf describes a model.
func InputOf(m *modelfile.Model) (*spec.StepInput, error) {
	f, err := m.Fingerprint()
	if err != nil {
		return nil, err
	}
	in := &spec.StepInput{Bytes: m.Size(), Data: f.Data, Unhashed: f.Unhashed}
	if f.Whole {
		in.SHA256 = f.Model
	} else {
		in.Structure = f.Model
	}
	return in, nil
}

// WithInput returns the step with m as its input.
func WithInput(s spec.Step, m *modelfile.Model) (*spec.Step, error) {
	in, err := InputOf(m)
	s.Input = in
	return &s, err
}

// Add adds a step to the record of a model, whose lists may be shared. A record that is not a list of
// steps is not changed. Add returns by how many bytes the model grows.
func Add(m *onnxpb.ModelProto, s spec.Step) int64 {
	var steps []json.RawMessage
	entry := find(m)
	if entry != nil && json.Unmarshal([]byte(entry.GetValue()), &steps) != nil {
		return 0
	}
	last, err := json.Marshal(s)
	if err != nil {
		return 0 // it has strings and numbers only
	}
	list, err := json.Marshal(append(steps, last))
	if err != nil {
		return 0
	}
	before := bytesOf(m.MetadataProps)
	props := slices.DeleteFunc(slices.Clone(m.MetadataProps), func(e *onnxpb.StringStringEntryProto) bool { return e == entry })
	m.MetadataProps = append(props, &onnxpb.StringStringEntryProto{Key: new(Key), Value: new(string(list))})
	return bytesOf(m.MetadataProps) - before
}

func bytesOf(props []*onnxpb.StringStringEntryProto) int64 {
	return int64(proto.Size(&onnxpb.ModelProto{MetadataProps: props}))
}

// Of returns the steps that a model was made in; none if it has no record that can be read.
func Of(m *onnxpb.ModelProto) []spec.Step {
	var steps []spec.Step
	if entry := find(m); entry == nil || json.Unmarshal([]byte(entry.GetValue()), &steps) != nil {
		return nil
	}
	return steps
}

// Calibrated reports whether data found codes in a step.
func Calibrated(s spec.Step) bool {
	if len(s.Codes) == 0 { // older records have the flags alone
		return slices.Contains(strings.Fields(s.Options), "--calib")
	}
	return slices.ContainsFunc(s.Codes, func(c spec.StepCodes) bool { return c.Calibrated })
}

func find(m *onnxpb.ModelProto) *onnxpb.StringStringEntryProto {
	i := slices.IndexFunc(m.MetadataProps, func(e *onnxpb.StringStringEntryProto) bool { return e.GetKey() == Key })
	if i < 0 {
		return nil
	}
	return m.MetadataProps[i]
}
