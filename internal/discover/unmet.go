package discover

import "onnxquant/spec"

// Asked says which settings the caller has given. The others are defaults, from which a weight may differ.
type Asked struct {
	Format, Block, Algorithm, Calibration, ScaleType, Style, Activations bool
}

// Unmet is a setting that was asked for and that a weight does not get.
type Unmet struct {
	Setting string // such as "algorithm"
	Asked   string // such as "best"; or ""
	Got     string // such as "mse"; "" if the weight stays in float
	Why     string
	Memory  int64 // that it takes, if there is too little; or 0

	// Expected: the setting itself says that some weights get something else.
	Expected bool
}

// miss notes that the weight does not get a setting, if it was asked for. Settings of its own may rule out
// others.
func (d *Decision) miss(asked bool, u Unmet) {
	if asked && !(d.own() && u.Memory == 0) {
		d.Unmet = append(d.Unmet, u)
	}
}

// own reports whether the tensor has a format or block size of its own, which may rule out other settings.
func (d *Decision) own() bool {
	return d.Override.Format != nil || d.Override.Bits != nil || d.Override.Block != nil
}

// missAlgorithm notes that the weight gets another algorithm than the one in the options.
func (d *Decision) missAlgorithm(opts Options, got spec.Algorithm, why string) {
	d.miss(opts.Asked.Algorithm && opts.Algorithm != got, Unmet{Setting: "algorithm", Asked: string(opts.Algorithm), Got: string(got), Why: why})
}
