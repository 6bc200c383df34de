package main

import "syscall"

// childAttributes: a process group of its own, so that Ctrl-C reaches us first, and an end with ours.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
