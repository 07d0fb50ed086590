package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"turnkeeper/internal/pause"
)

// errLocked says that another process holds a conflicting lock.
var errLocked = errors.New("locked by another process")

// Modes of a file lock: one holder, or any number.
const (
	exclusive = syscall.LOCK_EX
	shared    = syscall.LOCK_SH
)

// fileLock is a lock on a file. The kernel releases it when the process ends in any way.
type fileLock struct{ file *os.File }

// acquire waits for the lock. It tries at least once, even if ctx is done.
func acquire(ctx context.Context, path string, how int) (*fileLock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the lock file of the private Postgres: %w", err)
	}
	l := &fileLock{file: file}
	for {
		err := l.try(how)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, errLocked) {
			l.release()
			return nil, err
		}
		if err := pause.For(ctx, poll); err != nil {
			l.release()
			return nil, fmt.Errorf("another process keeps %s locked: %w", path, err)
		}
	}
}

// upgrade makes a shared lock exclusive, or returns errLocked at once; then the shared lock may be lost.
func (l *fileLock) upgrade() error { return l.try(exclusive) }

func (l *fileLock) try(how int) error {
	for {
		err := syscall.Flock(int(l.file.Fd()), how|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		case err != nil:
			return fmt.Errorf("cannot lock %s: %w", l.file.Name(), err)
		}
		return nil
	}
}

// release unlocks and closes the file. Closing is not enough: a child between fork and exec has a copy of
// the file, which keeps the lock.
func (l *fileLock) release() {
	_ = syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN)
	_ = l.file.Close()
}
