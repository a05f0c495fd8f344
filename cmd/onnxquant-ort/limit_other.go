//go:build !linux

package main

// limitMemory does nothing: these systems have no such limit, or none that they keep.
func limitMemory() {}
