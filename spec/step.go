package spec

// Step is one conversion in the history that a model carries in its metadata.
type Step struct {
	Tool    string     `json:"tool"`
	Version string     `json:"version"`
	Command string     `json:"command"`
	Options string     `json:"options,omitempty"` // written as flags of the command
	Input   *StepInput `json:"input,omitempty"`
}

// StepInput identifies the input model of a step. Large contents are not hashed, because that would
// take as long as quantizing them.
type StepInput struct {
	Bytes     int64    `json:"bytes"`                      // size including external data
	SHA256    string   `json:"sha256,omitempty"`           // hash of the model file, in hexadecimal
	Structure string   `json:"structure_sha256,omitempty"` // instead of SHA256: hash of the model file without the contents of tensors
	Data      []string `json:"data_sha256,omitempty"`      // hashes of the external data files, in the order of their names
	Unhashed  int64    `json:"unhashed_bytes,omitempty"`   // size of the contents that no hash covers
}
