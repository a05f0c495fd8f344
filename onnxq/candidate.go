package onnxq

import (
	"fmt"
	"strconv"
	"strings"
)

// Candidate is a way to store a weight that an analysis tries.
type Candidate struct {
	Format    Format
	Block     int // 0: the format's own or 128; PerChannel
	ZeroPoint bool
}

// DefaultCandidates are those that an analysis tries unless told otherwise.
var DefaultCandidates = []Candidate{
	{Int4, 128, false}, {Int4, 64, false}, {Int4, 32, false}, {Int4, 32, true}, {Int4, 16, true}, {Int8, 128, false}, {Int8, 32, false},
}

// ParseCandidate reads a format, which may be followed by a block size or channel and,
// for zero points, zp, separated by colons: int4:32:zp, int8:channel, nf4.
func ParseCandidate(text string) (Candidate, error) {
	name, rest, more := strings.Cut(text, ":")
	var c Candidate
	var err error
	if c.Format, err = ParseFormat(name); err != nil {
		return c, err
	}
	bad := fmt.Errorf("candidate %q: want FORMAT, FORMAT:BLOCK or FORMAT:BLOCK:zp, BLOCK a number or channel", text)
	if c.Format == Float {
		if more {
			return c, bad
		}
		return c, nil
	}
	if more {
		block, zp, more := strings.Cut(rest, ":")
		if more && zp != "zp" {
			return c, bad
		}
		c.ZeroPoint = more
		if block == "channel" {
			c.Block = PerChannel
		} else if c.Block, err = strconv.Atoi(block); err != nil || c.Block < 2 && c.Block != PerChannel {
			return c, bad
		}
	}
	if _, _, err := resolveFormat(0, c.Format, c.Block, c.ZeroPoint); err != nil {
		return c, fmt.Errorf("candidate %q: %w", text, err)
	}
	return c, nil
}

// String writes the candidate as ParseCandidate reads it.
func (c Candidate) String() string {
	text := string(c.Format)
	switch {
	case c.Block == PerChannel:
		text += ":channel"
	case c.Block != 0:
		text += ":" + strconv.Itoa(c.Block)
	}
	if c.ZeroPoint {
		text += ":zp"
	}
	return text
}

// MarshalText writes the candidate as String does.
func (c Candidate) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// override says the candidate in a precision_info.
func (c Candidate) override() Override {
	o := Override{Format: &c.Format}
	if c.Format == Float {
		return o
	}
	if c.Block != 0 {
		o.Block = &c.Block
	}
	if c.Format.traits().family == integer {
		o.ZeroPoint = &c.ZeroPoint
	}
	return o
}
