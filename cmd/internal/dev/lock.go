package dev

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lock keeps a second `bourse dev` off the same data directory.
func lock(dir string) (unlock func(), err error) {
	path := filepath.Join(dir, "lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close() //nolint:errcheck // never written
		return nil, fmt.Errorf("%s is in use by another bourse dev: %w", dir, err)
	}
	return func() { file.Close() }, nil //nolint:errcheck // closing releases the lock
}
