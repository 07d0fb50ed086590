package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// maxSocketPath is the maximum length of a socket's path on all systems: Linux allows 107 bytes, macOS and
// the BSDs 103.
const maxSocketPath = 103

const socketName = ".s.PGSQL." + port

// recordedSocketDir returns the socket's folder of the last start; empty: none.
func (h home) recordedSocketDir() string {
	text, err := os.ReadFile(h.socket())
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}

// prepareSocketDir finds a folder for the socket and records it. It reuses the folder of the last start if
// possible, so that the URLs of processes that outlived a crash of the server stay valid.
func (l *launch) prepareSocketDir(ctx context.Context) error {
	if dir := l.home.recordedSocketDir(); dir != "" && l.usable(dir) {
		l.socketDir = dir
		for _, left := range []string{socketName, socketName + ".lock"} {
			if err := os.RemoveAll(filepath.Join(dir, left)); err != nil {
				return fmt.Errorf("cannot remove the socket of an ended server: %w", err)
			}
		}
		return nil
	}
	dir, err := l.newSocketDir(ctx)
	if err != nil {
		return fmt.Errorf("cannot create a folder for the socket of the private Postgres: %w", err)
	}
	l.socketDir, l.madeSocketDir = dir, true
	if err := os.WriteFile(l.home.socket(), []byte(dir+"\n"), 0o600); err != nil {
		return errors.Join(fmt.Errorf("cannot record the socket of the private Postgres: %w", err), os.RemoveAll(dir))
	}
	return nil
}

// usable reports whether a folder belongs to the account and only the account can enter it.
func (l *launch) usable(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		return false
	}
	owner, err := ownerOf(dir)
	return err == nil && owner == l.account.uid
}

func (l *launch) newSocketDir(ctx context.Context) (string, error) {
	var last error
	for _, base := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		dir, err := os.MkdirTemp(base, "turnkeeper-")
		if err != nil {
			last = err
			continue
		}
		if err := l.fits(ctx, dir); err != nil {
			last = errors.Join(err, os.RemoveAll(dir))
			continue
		}
		return dir, nil
	}
	return "", last
}

func (l *launch) fits(ctx context.Context, dir string) error {
	if len(filepath.Join(dir, socketName+".lock")) > maxSocketPath {
		return fmt.Errorf("the path %s is too long for a socket", dir)
	}
	if err := l.account.own(dir); err != nil {
		return err
	}
	if !l.account.canEnter(ctx, l.install, dir) {
		return fmt.Errorf("%s cannot enter %s", l.account.name, dir)
	}
	return nil
}

// forgetSocketDir removes the socket's folder after the server has stopped.
func (h home) forgetSocketDir() {
	if dir := h.recordedSocketDir(); filepath.IsAbs(dir) {
		_ = os.RemoveAll(dir)
		_ = os.Remove(h.socket())
	}
}
