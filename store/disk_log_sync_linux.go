package store

import (
	"os"
	"syscall"
)

// syncData syncs what was written within a file's length: its time of change needs no sync of its own.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
