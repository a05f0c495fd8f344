package commit

import "golang.org/x/sys/unix"

// exchange swaps the names of two folders, at once where the file system can do it.
func exchange(a, b string) error {
	if unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) == nil {
		return nil
	}
	return exchangeSlowly(a, b)
}
