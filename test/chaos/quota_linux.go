package main

import "golang.org/x/sys/unix"

// limitFiles stands in for a full disk, which needs a file system of its own and so root: no file
// of the process may be written beyond so many bytes. Writes fail with EFBIG where a full disk
// says ENOSPC.
func limitFiles(pid int, size uint64) error {
	limit := unix.Rlimit{Cur: size, Max: unlimited}
	return unix.Prlimit(pid, unix.RLIMIT_FSIZE, &limit, nil)
}

const (
	fullAt    = 16 << 10
	unlimited = unix.RLIM_INFINITY
)
