package specvalue

import "onnxquant/spec"

// Share is the value of a flag that takes one of several shares, as I/N.
type Share struct{ To *spec.Share }

func (s Share) Set(text string) (err error) { *s.To, err = spec.ParseShare(text); return err }
func (s Share) String() string              { return "" }
func (s Share) Type() string                { return "I/N" }
