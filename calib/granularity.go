package calib

import "fmt"

// Granularity says how many values share a scale.
type Granularity string

const (
	PerTensor  Granularity = "tensor"
	PerChannel Granularity = "channel" // rows of the first axis
	PerGroup   Granularity = "group"   // so many values in the order of memory
)

// Share returns how many of n values, which are rows of channels, share a scale. The
// last group may have fewer. channels and group are used where they mean something.
func (g Granularity) Share(n, channels, group int) (int, error) {
	switch g {
	case PerTensor:
		return max(n, 1), nil
	case PerChannel:
		if channels < 1 || n%channels != 0 {
			return 0, fmt.Errorf("%d values are not %d channels", n, channels)
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
