package msg

import (
	"errors"
	"io/fs"
	"os"
)

// Cause strips the operation and the path from a file error: the caller says them in its own words.
func Cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err
	}
	return err
}
