package onnxq

// Precision holds the overrides of a precision_info file.
type Precision struct{}

// ParsePrecision reads a precision_info JSON document.
func ParsePrecision(json []byte) (*Precision, error) { return nil, nil }
