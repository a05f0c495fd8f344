//go:build !unix && !windows

package work

import "time"

// Spent is 0: it is unknown on this system.
func Spent() time.Duration { return 0 }
