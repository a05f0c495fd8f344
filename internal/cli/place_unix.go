//go:build unix

package cli

import "golang.org/x/sys/unix"

// checkWritable returns an error if no file can be made in a folder. It makes none: a kill would leave that.
func checkWritable(folder string) error {
	return unix.Access(folder+"/.", unix.W_OK|unix.X_OK) // of a file, /. is an error
}
