package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap"
)

// systemHome is the folder for data of root's servers if the server's user cannot enter the requested
// folder. This package never removes a cluster in it: a missing home may have been renamed, be on an
// unmounted disk, or be inside a container.
var systemHome = "/var/lib/turnkeeper"

// Names of such a folder and of the file in it that records the data's home, for people only.
const (
	elsewherePrefix = "turnkeeper-data-"
	recordName      = "home"
)

// reserveElsewhere creates an empty folder for a cluster in systemHome.
func (l *launch) reserveElsewhere(ctx context.Context) (string, error) {
	if !l.account.drop {
		return "", fmt.Errorf("cannot run a server program in %s", l.home.dir)
	}
	if err := os.MkdirAll(systemHome, 0o755); err != nil {
		return "", err
	}
	if !l.account.canEnter(ctx, l.install, systemHome) {
		return "",
			fmt.Errorf(
				"%s, who runs Postgres because it refuses root, can enter neither %s nor %s: use a folder that all users can enter, or set DATABASE_URL", l.account.name, l.home.dir, systemHome)
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

// record writes the path of the home to the data's folder in systemHome.
func (h home) record(folder string) error {
	return os.WriteFile(filepath.Join(folder, recordName), []byte(h.dir+"\n"), 0o600)
}

// recordAgain updates the record, because the home may have moved.
func (l *launch) recordAgain(data string) {
	folder := filepath.Dir(data)
	if folder == l.home.dir {
		return
	}
	if _, err := os.Lstat(filepath.Join(folder, recordName)); err != nil {
		return // not created by this package
	}
	if err := l.home.record(folder); err != nil {
		l.log.Warn("cannot record the home of this data", zap.String("folder", folder), zap.Error(err))
	}
}
