package procguard

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// Protect makes this process undumpable: only root can read its environment, its memory and its
// list of files in /proc, or attach a debugger. It leaves no core, and neither do its children. Its
// files, but the first three, are not passed on to programs. A program that this process becomes or
// starts is dumpable again. It is called first in main: until then, the process is open to others.
func Protect() error { return errors.Join(Hide(), noCore(), KeepFiles()) }

// Hide makes this process undumpable, and does nothing else that Protect does.
func Hide() error {
	const prSetDumpable = 4 // of prctl
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0); errno != 0 {
		return fmt.Errorf("programs of this user can read this process's secrets: prctl: %w", errno)
	}
	return nil
}

func noCore() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("cores may be written: setrlimit: %w", err)
	}
	return nil
}

// KeepFiles marks every open file from the fourth on close-on-exec: those that this process
// inherited too. Programs get what they are given, and nothing else.
func KeepFiles() error {
	const (
		closeRange        = 436 // the call's number, the same on every platform of Go but MIPS
		closeRangeCloexec = 4
		first, last       = 3, 1<<32 - 1
	)
	if _, _, errno := syscall.RawSyscall(closeRange, first, last, closeRangeCloexec); errno == 0 {
		return nil
	}
	return keepEach(first)
}

// keepEach is KeepFiles for kernels before 5.11.
func keepEach(first int) error {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("programs may get files that this process inherited: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd >= first {
			syscall.CloseOnExec(fd)
		}
	}
	return err
}
