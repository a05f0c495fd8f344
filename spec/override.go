package spec

// Override is an entry of a precision_info. It replaces some options for the weights that match its
// key. Nil fields change nothing.
type Override struct {
	Bits      *int       `json:"bits,omitempty"`
	Block     *int       `json:"block,omitempty"`
	Axis      *int       `json:"axis,omitempty"`
	Format    *Format    `json:"format,omitempty"` // Float: do not quantize
	Algorithm *Algorithm `json:"algorithm,omitempty"`
	ZeroPoint *bool      `json:"zero_point,omitempty"`
	ScaleType *ScaleType `json:"scale_type,omitempty"` // for integer formats
}

// SetIf sets *dst to *src unless src is nil.
func SetIf[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}
