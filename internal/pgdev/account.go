package pgdev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// account is the user that the server runs as.
type account struct {
	name string
	uid  int
	gid  int
	drop bool // the process is root and must drop to this user
}

// serverAccount returns this process's user or, for root, an unprivileged one: the owner of the data if
// there is a cluster.
func serverAccount(h home, haveCluster bool) (account, error) {
	owner := -1
	if haveCluster {
		var err error
		if owner, err = ownerOf(h.data()); err != nil {
			return account{}, err
		}
	}
	if me := os.Geteuid(); me != 0 {
		if owner >= 0 && owner != me {
			return account{},
				fmt.Errorf("the data in %s belongs to user id %d, not to you (%d): run as that user or as root",
					h.data(), owner, me)
		}
		return account{name: "this user", uid: me, gid: os.Getegid()}, nil
	}
	if owner == 0 {
		return account{},
			fmt.Errorf("the data in %s belongs to root, and Postgres refuses to run as root: change its owner",
				h.data())
	}
	if owner > 0 {
		return lookUp(user.LookupId(strconv.Itoa(owner)))
	}
	found, err := user.Lookup("postgres")
	if err != nil {
		found, err = user.Lookup("nobody")
	}
	return lookUp(found, err)
}

func lookUp(found *user.User, err error) (account, error) {
	if err != nil {
		return account{},
			fmt.Errorf(
				"found no unprivileged user to run Postgres as (it refuses root): run as another user, or set DATABASE_URL: %w", err)
	}
	uid, errUID := strconv.Atoi(found.Uid)
	gid, errGID := strconv.Atoi(found.Gid)
	if err := errors.Join(errUID, errGID); err != nil {
		return account{}, fmt.Errorf("the user %s cannot run Postgres: %w", found.Username, err)
	}
	return account{name: "the user " + found.Username, uid: uid, gid: gid, drop: true}, nil
}

// credential returns the credential to run a child as the account; nil: the process's own.
func (a account) credential() *syscall.Credential {
	if !a.drop {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)} //nolint:gosec // ids of users are 32 bits long
}

// own changes the owner of a file or folder to the account.
func (a account) own(path string) error {
	if !a.drop {
		return nil
	}
	if err := os.Chown(path, a.uid, a.gid); err != nil {
		return fmt.Errorf("cannot change the owner of %s to %s, who runs Postgres: %w", path, a.name, err)
	}
	return nil
}

// command prepares a server program to run as the account in a folder. Its environment is minimal: the
// server must not inherit PG* settings or secrets of this process. It leads a session, so that it gets no
// signals of the terminal, and cancelling ctx kills its children too.
func (a account) command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = serverEnvironment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential(), Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

func serverEnvironment() []string {
	env := []string{"LC_ALL=C"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// canEnter reports whether the account can enter a folder. It tries, because access lists and mounts
// matter too.
func (a account) canEnter(ctx context.Context, in install, dir string) bool {
	return a.command(context.WithoutCancel(ctx), dir, in.postgres(), "--version").Run() == nil
}
