//go:build !unix

package program

import "os/exec"

func alone(*exec.Cmd) {}

func killFamily(cmd *exec.Cmd) error { return cmd.Process.Kill() }
