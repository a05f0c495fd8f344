package spec

import (
	"fmt"
	"strconv"
	"strings"
)

// Candidate is a format with its settings that an analysis tries.
type Candidate struct {
	Format    Format
	Block     int // number of elements that share a scale, or PerChannel; 0: the format's default
	ZeroPoint bool
	ScaleType ScaleType // for integer formats; "": the scale type of the options
}

// DefaultCandidates are tried if an analysis names none. Convolutions try only those of 8 bits.
var DefaultCandidates = []Candidate{
	{Int4, 128, false, ""}, {Int4, 64, false, ""}, {Int4, 32, false, ""}, {Int4, 32, true, ""}, {Int4, 16, true, ""},
	{Int4, 64, true, ScaleUint8}, {Int4, 32, true, ScaleUint8}, {Int4, 16, true, ScaleUint8}, {"q4_0", 0, false, ""}, {"q4_k", 0, false, ""},
	{Int8, PerChannel, false, ""}, {Int8, 128, false, ""}, {Int8, 32, false, ""},
}

// DataCandidates are tried in addition to DefaultCandidates if an analysis names none and measures
// outputs.
var DataCandidates = []Candidate{
	{Int2, 16, true, ""}, {"q3_k", 0, false, ""}, {Int4, 64, true, ""}, {"iq4_nl", 0, false, ""}, {"q5_k", 0, false, ""}, {"q6_k", 0, false, ""},
}

// CalibratedCandidates are tried instead of both if calibration will find the codes. q2_k lies
// between integers of 2 and 4 bits. Other formats with a search of their own are not listed. They
// are no better than integers of the same size, or, with codes of 5 and 6 bits, as large as int8:
// ONNX stores such codes in bytes.
var CalibratedCandidates = []Candidate{
	{Int2, 32, true, ScaleUint8}, {Int2, 16, true, ScaleUint8}, {"q2_k", 0, false, ""},
	{Int4, PerChannel, false, ""}, {Int4, 128, false, ScaleInt8}, {Int4, 64, false, ScaleInt8}, {Int4, 32, false, ScaleInt8}, {Int4, 32, true, ScaleUint8},
	{Int4, 16, false, ScaleInt8}, {Int4, 16, true, ScaleUint8},
	{Int8, PerChannel, false, ""}, {Int8, 32, false, ScaleInt8},
}

// scaleSuffix follows the type of scales in the text of a candidate.
const scaleSuffix = "scale"

// ParseCandidate parses FORMAT[:BLOCK][:zp][:TYPEscale]. BLOCK is a number or channel. zp asks for
// zero points. TYPE is a ScaleType. Examples: int4:32:zp, int4:zp, int8:channel, int4:16:int8scale,
// nf4.
func ParseCandidate(text string) (c Candidate, err error) {
	fields := strings.Split(text, ":")
	if c.Format, err = ParseFormat(fields[0]); err != nil {
		return c, err
	}
	settings := fields[1:]
	if n := len(settings); n > 0 && strings.HasSuffix(settings[n-1], scaleSuffix) {
		if c.ScaleType, err = ParseScaleType(strings.TrimSuffix(settings[n-1], scaleSuffix)); err != nil {
			return c, fmt.Errorf("candidate %q: %w", text, err)
		}
		settings = settings[:n-1]
	}
	if n := len(settings); n > 0 && settings[n-1] == "zp" {
		c.ZeroPoint, settings = true, settings[:n-1]
	}
	bad := fmt.Errorf("candidate %q: want FORMAT[:BLOCK][:zp][:TYPEscale], BLOCK a number or channel", text)
	switch {
	case c.Format == Float && len(fields) > 1, len(settings) > 1:
		return c, bad
	case c.Format == Float:
		return c, nil
	case len(settings) == 0:
	case settings[0] == "channel":
		c.Block = PerChannel
	default:
		if c.Block, err = strconv.Atoi(settings[0]); err != nil || c.Block < 2 && c.Block != PerChannel {
			return c, bad
		}
	}
	return c, c.Check()
}

// Check returns an error if the settings do not fit the format.
func (c Candidate) Check() error {
	if c.Format == Float && c != (Candidate{Format: Float}) {
		return fmt.Errorf("candidate %q: format float takes no settings", c)
	}
	if c.Block != 0 && c.Block < 2 && c.Block != PerChannel {
		return fmt.Errorf("candidate %q: block size %d: want at least 2, or channel", c, c.Block)
	}
	if c.Format == "" {
		return fmt.Errorf("candidate %q: it has no format", c)
	}
	if c.Format == Float {
		return nil
	}
	if _, _, err := Resolve(0, c.Format, c.Block, c.ZeroPoint); err != nil {
		return fmt.Errorf("candidate %q: %w", c, err)
	}
	if c.ScaleType.Smaller() && c.Format.Traits().Family != Integer {
		return fmt.Errorf("candidate %q: scale types are for integer formats", c)
	}
	return nil
}

// String writes the candidate in the syntax of ParseCandidate.
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
	if c.ScaleType != "" {
		text += ":" + string(c.ScaleType) + scaleSuffix
	}
	return text
}

// MarshalText writes the candidate as String does.
func (c Candidate) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Override returns the candidate as an entry of a precision_info.
func (c Candidate) Override() Override {
	o := Override{Format: &c.Format}
	if c.Format == Float {
		return o
	}
	if c.Block != 0 {
		o.Block = &c.Block
	}
	if c.Format.Traits().Family == Integer {
		o.ZeroPoint = &c.ZeroPoint
	}
	if c.ScaleType != "" {
		o.ScaleType = &c.ScaleType
	}
	return o
}
