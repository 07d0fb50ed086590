package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// maxSocketPath is the longest name of a socket that all systems take; Linux
// takes 107 bytes, macOS and the BSDs 103.
const maxSocketPath = 103

const socketName = ".s.PGSQL." + port

// recordedSocketDir returns the folder of the socket that the last start used,
// or nothing.
func (h home) recordedSocketDir() string {
	text, err := os.ReadFile(h.socket())
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}

// prepareSocketDir finds a folder for the socket and records it. The folder of
// the last start is used again if it is still there, so that the URLs of
// processes which outlived a crash of the server stay true.
func (l *launch) prepareSocketDir(ctx context.Context) error {
	if dir := l.home.recordedSocketDir(); dir != "" && l.usable(dir) {
		l.socketDir = dir
		for _, left := range []string{socketName, socketName + ".lock"} {
			if err := os.RemoveAll(filepath.Join(dir, left)); err != nil {
				return fmt.Errorf("cannot remove the socket of a server that is gone: %w", err)
			}
		}
		return nil
	}
	dir, err := l.newSocketDir(ctx)
	if err != nil {
		return fmt.Errorf("cannot make a folder for the socket of the private Postgres: %w", err)
	}
	l.socketDir, l.madeSocketDir = dir, true
	if err := os.WriteFile(l.home.socket(), []byte(dir+"\n"), 0o600); err != nil {
		return errors.Join(fmt.Errorf("cannot record the socket of the private Postgres: %w", err), os.RemoveAll(dir))
	}
	return nil
}

// usable tells whether a folder is the account's own and nobody else's.
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
		return fmt.Errorf("%s is too long for a socket", dir)
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
