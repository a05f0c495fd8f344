package calib

import "fmt"

// Granularity says how many values share a scale.
type Granularity string

const (
	PerTensor  Granularity = "tensor"  // all values
	PerChannel Granularity = "channel" // rows of the first axis
	PerGroup   Granularity = "group"   // groups of consecutive values
)

// Share returns the number of values that share a scale, out of n values in equal rows,
// one per channel. The last group may have fewer. channels matters per channel only,
// group per group only.
func (g Granularity) Share(n, channels, group int) (int, error) {
	switch g {
	case PerTensor:
		return max(n, 1), nil
	case PerChannel:
		if channels < 1 || n%channels != 0 {
			return 0, fmt.Errorf("%d values cannot be %d equal channels", n, channels)
		}
		return max(n/channels, 1), nil
	case PerGroup:
		if group < 1 {
			return 0, fmt.Errorf("groups of %d values: want at least 1", group)
		}
		return group, nil
	}
	return 0, fmt.Errorf("granularity %q: want tensor, channel or group", string(g))
}
