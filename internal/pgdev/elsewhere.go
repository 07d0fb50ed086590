package pgdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// systemHome is where the data of root's servers goes when the server's user
// cannot come to the folder that was asked for.
var systemHome = "/var/lib/turnkeeper"

// Names of such a folder and in it. The record says which home the data is of.
const (
	elsewherePrefix = "turnkeeper-data-"
	recordName      = "home"
)

// reserveElsewhere makes an empty folder for a cluster outside of its home. The
// data of a home in the folder for temporary files goes there as well, and goes
// away some time after its home.
func (l *launch) reserveElsewhere(ctx context.Context) (string, error) {
	if !l.account.drop {
		return "", fmt.Errorf("a server program does not run in %s", l.home.dir)
	}
	base := systemHome
	if temporary := os.TempDir(); strings.HasPrefix(l.home.dir, temporary+"/") && l.account.canEnter(ctx, l.install, temporary) {
		base = temporary
		sweep(ctx, base)
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	if !l.account.canEnter(ctx, l.install, base) {
		return "", fmt.Errorf("%s, who runs Postgres because it refuses root, can enter neither %s nor %s: use a folder that all users can enter, or set DATABASE_URL", l.account.name, l.home.dir, base)
	}
	folder, err := os.MkdirTemp(base, elsewherePrefix)
	if err != nil {
		return "", err
	}
	data := filepath.Join(folder, "data")
	return data, errors.Join(
		os.Chmod(folder, 0o711),
		os.WriteFile(filepath.Join(folder, recordName), []byte(l.home.dir+"\n"), 0o600),
		os.Mkdir(data, 0o700),
	)
}

// sweep removes temporary data whose home is gone, and stops a server that is
// still running on it.
func sweep(ctx context.Context, base string) {
	folders, _ := filepath.Glob(filepath.Join(base, elsewherePrefix+"*"))
	for _, folder := range folders {
		info, err := os.Lstat(folder)
		if err != nil || !info.IsDir() {
			continue
		}
		if owner, err := ownerOf(folder); err != nil || owner != 0 {
			continue // not of our making
		}
		record, err := os.ReadFile(filepath.Join(folder, recordName))
		if err != nil {
			continue // being made
		}
		if _, err := os.Lstat(strings.TrimSuffix(string(record), "\n")); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if p, running := (home{dir: folder}).postmaster(); running && p.stop(ctx) != nil {
			continue
		}
		_ = os.RemoveAll(folder)
	}
}
