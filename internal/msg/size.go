package msg

import (
	"fmt"
	"math"
)

// Resized says how a size changed: "3.9 times smaller", "2.5 % larger", "the same size"; "" for a
// size of 0.
func Resized(before, after int64) string {
	times := float64(before) / float64(after)
	percent := 100 * (1/times - 1)
	switch {
	case before <= 0 || after <= 0:
		return ""
	case math.Abs(percent) < 0.05:
		return "the same size"
	case -10 < percent && percent < 0:
		return fmt.Sprintf("%.1f %% smaller", -percent)
	case 0 < percent && percent < 10:
		return fmt.Sprintf("%.1f %% larger", percent)
	case times > 1:
		return fmt.Sprintf("%.1f times smaller", times)
	}
	return fmt.Sprintf("%.1f times larger", 1/times)
}
