//go:build unix && !linux

package program

import (
	"os/exec"
	"syscall"
)

// alone gives the program a process group, to be killed as one.
func alone(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killFamily(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
