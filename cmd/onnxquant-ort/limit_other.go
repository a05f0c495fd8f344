//go:build !linux

package main

// limitMemory does nothing: these systems have no such limit, or do not enforce it.
func limitMemory() {}
