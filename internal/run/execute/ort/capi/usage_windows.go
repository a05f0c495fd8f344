package capi

// PeakMemory returns 0: it is unknown on this system.
func PeakMemory() int64 { return 0 }
