package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap"
)

// systemHome is where the data of root's servers goes when the server's user
// cannot come to the folder that was asked for. Nothing there is ever removed
// by this package once a cluster is in it: a home that is not found may have
// been renamed, be on a disk that is not mounted, or be inside a container.
var systemHome = "/var/lib/turnkeeper"

// Names of such a folder and in it. The record says which home the data is of:
// for people, and for nothing else.
const (
	elsewherePrefix = "turnkeeper-data-"
	recordName      = "home"
)

// reserveElsewhere makes an empty folder for a cluster outside of its home.
func (l *launch) reserveElsewhere(ctx context.Context) (string, error) {
	if !l.account.drop {
		return "", fmt.Errorf("a server program does not run in %s", l.home.dir)
	}
	if err := os.MkdirAll(systemHome, 0o755); err != nil {
		return "", err
	}
	if !l.account.canEnter(ctx, l.install, systemHome) {
		return "", fmt.Errorf("%s, who runs Postgres because it refuses root, can enter neither %s nor %s: use a folder that all users can enter, or set DATABASE_URL", l.account.name, l.home.dir, systemHome)
	}
	folder, err := os.MkdirTemp(systemHome, elsewherePrefix)
	if err != nil {
		return "", err
	}
	data := filepath.Join(folder, "data")
	return data, errors.Join(
		os.Chmod(folder, 0o711),
		l.home.record(folder),
		os.Mkdir(data, 0o700),
	)
}

// record notes in a folder elsewhere whose data it holds.
func (h home) record(folder string) error {
	return os.WriteFile(filepath.Join(folder, recordName), []byte(h.dir+"\n"), 0o600)
}

// recordAgain brings the record up to date, as the home may have moved since.
func (l *launch) recordAgain(data string) {
	folder := filepath.Dir(data)
	if folder == l.home.dir {
		return
	}
	if _, err := os.Lstat(filepath.Join(folder, recordName)); err != nil {
		return // a folder of somebody else's making
	}
	if err := l.home.record(folder); err != nil {
		l.log.Warn("cannot note whose data this is", zap.String("folder", folder), zap.Error(err))
	}
}
