package pgdev

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// home is the folder of one server, and the paths in it.
type home struct{ dir string }

func (h home) data() string      { return filepath.Join(h.dir, "data") } // the cluster or a link to it
func (h home) log() string       { return filepath.Join(h.dir, "log") }
func (h home) password() string  { return filepath.Join(h.dir, "password") }
func (h home) socket() string    { return filepath.Join(h.dir, "socket") } // has the path of the socket's folder
func (h home) startLock() string { return filepath.Join(h.dir, "start.lock") }
func (h home) usersLock() string { return filepath.Join(h.dir, "users.lock") }

// openHome creates the folder if it is missing and resolves links, so that all users of the server have
// the same path.
func openHome(dir string) (home, error) {
	if dir == "" {
		return home{}, errors.New("the private Postgres needs a folder: set Options.Dir")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return home{}, fmt.Errorf("cannot find the folder of the private Postgres: %w", err)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return home{}, fmt.Errorf("cannot create the folder of the private Postgres: %w", err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return home{}, fmt.Errorf("cannot find the folder of the private Postgres: %w", err)
	}
	owner, err := ownerOf(real)
	if err != nil {
		return home{}, err
	}
	if me := os.Geteuid(); me != 0 && owner != me {
		return home{},
			fmt.Errorf(
				"the folder %s of the private Postgres belongs to user id %d, not to you (%d): run as that user, or use another folder", real, owner, me)
	}
	return home{dir: real}, nil
}

// ownerOf returns the id of the user that a file or folder belongs to.
func ownerOf(path string) (int, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("cannot read the folder of the private Postgres: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("cannot determine the owner of %s on this system", path)
	}
	return int(stat.Uid), nil
}

// hasCluster reports whether the folder has a cluster.
func (h home) hasCluster() (bool, error) {
	_, err := os.Stat(filepath.Join(h.data(), "PG_VERSION"))
	switch {
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("cannot read the data of the private Postgres: %w", err)
	}
	return false, h.noCluster()
}

// Made reports whether the folder has a private Postgres, or something else at its path. It changes
// nothing.
func Made(dir string) bool {
	_, err := os.Lstat(home{dir}.data())
	return !errors.Is(err, fs.ErrNotExist)
}

// Runs reports whether the private Postgres of the folder runs. It changes nothing.
func Runs(dir string) bool {
	_, alive := home{dir}.postmaster()
	return alive
}

// noCluster returns an error if there is something other than a cluster; nil if there is nothing. It never
// advises to remove what may be the only copy of the messages, or a link to it.
func (h home) noCluster() error {
	target, err := os.Readlink(h.data())
	if err == nil {
		return fmt.Errorf(
			"the private Postgres has lost its data: %s links to %s, which is not a Postgres data folder. If the data was moved, move it back or fix the link: it has every message and reply. To start without them, use another data folder", h.data(), target)
	}
	if _, err := os.Lstat(h.data()); err == nil {
		return fmt.Errorf(
			"%s exists but is not a Postgres data folder. If it had a database, restore a copy: it had every message and reply. To start without them, move it aside", h.data())
	}
	return nil
}

// newPassword creates and stores the password of a new cluster.
func (h home) newPassword() (string, error) {
	password := rand.Text()
	if err := os.WriteFile(h.password(), []byte(password+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("cannot keep the password of the private Postgres: %w", err)
	}
	if err := os.Chmod(h.password(), 0o600); err != nil {
		return "", fmt.Errorf("cannot keep the password of the private Postgres: %w", err)
	}
	return password, nil
}

// readPassword returns the password stored by newPassword.
func (h home) readPassword() (string, error) {
	text, err := os.ReadFile(h.password())
	if err != nil {
		return "",
			fmt.Errorf(
				"cannot read the password of the private Postgres, which is needed to open the data in %s; restore the file: %w", h.data(), err)
	}
	return strings.TrimSpace(string(text)), nil
}
