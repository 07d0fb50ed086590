package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"turnkeeper/internal/pause"
)

// errLocked says that somebody else holds a lock that is in the way.
var errLocked = errors.New("locked by another process")

// How a file is locked: by one holder, or by any number together.
const (
	exclusive = syscall.LOCK_EX
	shared    = syscall.LOCK_SH
)

// fileLock is a lock on a file. The kernel gives it up when the process ends,
// however it ends.
type fileLock struct{ file *os.File }

// acquire waits for the lock. It looks at least once, even if ctx is done.
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

// upgrade makes a shared lock exclusive, or fails with errLocked at once; the
// shared lock may be lost then.
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

// release unlocks before it closes: a child of this process that is between
// fork and exec holds a copy of the file, and with it the lock.
func (l *fileLock) release() {
	_ = syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN)
	_ = l.file.Close()
}
