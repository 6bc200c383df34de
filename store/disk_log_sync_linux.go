package store

import (
	"errors"
	"os"
	"syscall"
)

// syncData syncs what was written within a file's length: its time of change needs no sync of its own.
func syncData(f *os.File) error {
	for {
		switch err := syscall.Fdatasync(int(f.Fd())); {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EINTR):
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
	}
}
