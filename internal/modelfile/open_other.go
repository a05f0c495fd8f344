//go:build !unix

package modelfile

const nonblock = 0

// syncFolder does nothing where folders cannot be synced.
func syncFolder(string) error { return nil }
