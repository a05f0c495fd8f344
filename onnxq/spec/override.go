package spec

// Override replaces some of the options for the weights that one key of a
// precision_info names. Nil fields change nothing.
type Override struct {
	Bits      *int       `json:"bits,omitempty"`
	Block     *int       `json:"block,omitempty"`
	Axis      *int       `json:"axis,omitempty"`
	Format    *Format    `json:"format,omitempty"` // Float leaves the weight as it is
	Algorithm *Algorithm `json:"algorithm,omitempty"`
	ZeroPoint *bool      `json:"zero_point,omitempty"`
}

func SetIf[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}
