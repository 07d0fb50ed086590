package procguard

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// Protect makes this process undumpable: only root can read its environment, memory and list of files in
// /proc, or attach a debugger. Neither it nor its children write core dumps, and programs inherit only
// its first three files. A program that this process execs or starts is dumpable again. Call it first in
// main: the process is unprotected until then.
func Protect() error { return errors.Join(Hide(), noCore(), KeepFiles()) }

// Hide only makes this process undumpable.
func Hide() error {
	const prSetDumpable = 4 // of prctl
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0); errno != 0 {
		return fmt.Errorf("cannot hide this process's secrets from programs of the same user: prctl: %w", errno)
	}
	return nil
}

func noCore() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("cannot disable core dumps: setrlimit: %w", err)
	}
	return nil
}

// KeepFiles marks every open file except the first three as close-on-exec, including inherited ones.
func KeepFiles() error {
	const (
		closeRange        = 436 // number of the system call on all platforms of Go except MIPS
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
		return fmt.Errorf("cannot keep programs from inheriting open files: %w", err)
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
