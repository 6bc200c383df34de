package dev

import "syscall"

// childAttributes puts a child into a process group of its own, so that Ctrl-C reaches only
// us, and has it end when we are killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
