package spec

// Step is one conversion in the history that a model carries in its metadata.
type Step struct {
	Tool    string     `json:"tool"`
	Version string     `json:"version"`
	Command string     `json:"command"`
	Options string     `json:"options,omitempty"` // written as flags of the command
	Input   *StepInput `json:"input,omitempty"`

	// A conversion adds the next fields.

	Folded   int         `json:"folded,omitempty"`           // nodes and constants that Options.Fold took away
	Balanced int         `json:"balanced,omitempty"`         // activations whose channels have factors, see Options.Balance
	Codes    []StepCodes `json:"codes,omitempty"`            // how weights were quantized
	Biases   int         `json:"corrected_biases,omitempty"` // that data corrected, see Options.Codes
	Data     string      `json:"data_sha256,omitempty"`      // hash of all calibration data

	Brief bool `json:"-"` // the model lists no hashes of single tensors
}

// StepCodes are weights that were quantized in the same way.
type StepCodes struct {
	Weights    int       `json:"weights"` // how many
	Format     Format    `json:"format"`
	Block      int       `json:"block"`
	Algorithm  Algorithm `json:"algorithm"`
	Calibrated bool      `json:"calibrated,omitempty"` // the codes were found by the inputs of layers
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

// Written identifies what a conversion wrote, by SHA-256 and CRC-32 in hexadecimal. How a file is laid
// out does not matter: contents are little-endian elements, wherever they are stored.
type Written struct {
	Contents  string `json:"contents_sha256"`  // over the CRC-32s of all tensors, a line each, in the order of the structure
	Graph     string `json:"graph_sha256"`     // nodes, inputs, outputs, shapes and types of tensors
	Operators string `json:"operators_sha256"` // the same without the inputs and attributes of nodes

	// Tensors has the CRC-32 of the content of each tensor, if they are few. Tensors of the main graph
	// have their names.
	Tensors map[string]string `json:"tensors,omitempty"`
}
