//go:build !linux

package dev

import "syscall"

// childAttributes puts a child into a process group of its own, so that Ctrl-C reaches only us.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
