//go:build unix && !linux

package program

import (
	"os/exec"
	"syscall"
)

// alone puts the program in its own process group, which killFamily kills.
func alone(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killFamily(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
