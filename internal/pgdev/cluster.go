package pgdev

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// makeCluster runs initdb in another folder and moves the complete cluster to its place, so that an
// interrupted start leaves no incomplete cluster.
func (l *launch) makeCluster(ctx context.Context) error {
	password, err := l.home.newPassword()
	if err != nil {
		return err
	}
	made, place, err := l.reserveCluster(ctx)
	if err != nil {
		return err
	}
	l.log.Info("creating a private Postgres in " + l.home.dir + ", which takes a few seconds")
	err = l.account.own(made)
	if err == nil {
		err = l.initdb(ctx, made, password)
	}
	if err == nil {
		err = place(made, l.home.data())
	}
	if err != nil {
		l.discard(made)
	}
	return err
}

// discard removes an incomplete cluster.
func (l *launch) discard(made string) {
	if folder := filepath.Dir(made); folder != l.home.dir {
		made = folder // reserved elsewhere, together with its record
	}
	_ = os.RemoveAll(made)
}

// reserveCluster creates the empty folder for a cluster. place moves or links the finished cluster to its
// place.
func (l *launch) reserveCluster(ctx context.Context) (made string, place func(made, data string) error, err error) {
	if l.letIn(ctx) {
		made = filepath.Join(l.home.dir, "data.new")
		err = errors.Join(os.RemoveAll(made), os.Mkdir(made, 0o700))
		place = os.Rename
	} else {
		made, err = l.reserveElsewhere(ctx)
		place = os.Symlink
	}
	if err != nil {
		return "", nil, fmt.Errorf("cannot create the data folder of the private Postgres: %w", err)
	}
	return made, place, nil
}

// letIn reports whether the account can enter the server's folder. If only the folder itself is closed,
// like one of os.MkdirTemp, it opens the folder for the account's group.
func (l *launch) letIn(ctx context.Context) bool {
	dir := l.home.dir
	if l.account.canEnter(ctx, l.install, dir) {
		return true
	}
	if !l.account.drop || !l.account.canEnter(ctx, l.install, filepath.Dir(dir)) {
		return false
	}
	info, err := os.Stat(dir)
	if err != nil || os.Chown(dir, -1, l.account.gid) != nil || os.Chmod(dir, info.Mode().Perm()|0o010) != nil {
		return false
	}
	return l.account.canEnter(ctx, l.install, dir)
}

// initdb creates a cluster in an empty folder owned by the account.
func (l *launch) initdb(ctx context.Context, made, password string) error {
	passwordFile, err := l.lendPassword(password)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(passwordFile) }()
	// Collate by bytes, which is fast and the same everywhere. Classify characters by Unicode: with ctype
	// C, full-text search joins a word with an adjacent typographic quote.
	err = l.initdbWith(ctx, made, passwordFile, "C.UTF-8")
	if err != nil && ctx.Err() == nil { // a system without that locale
		err = l.initdbWith(ctx, made, passwordFile, "C")
	}
	return err
}

func (l *launch) initdbWith(ctx context.Context, made, passwordFile, ctype string) error {
	args := []string{
		"--pgdata=" + made,
		"--username=" + ownerName,
		"--pwfile=" + passwordFile,
		"--auth=scram-sha-256",
		"--encoding=UTF8",
		"--locale=C",
		"--lc-ctype=" + ctype,
	}
	if l.opts.Quick {
		args = append(args, "--no-sync")
	}
	log, err := l.openLog()
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := l.account.command(ctx, made, l.install.initdb(), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return l.failure("could not create its data folder", err)
	}
	return nil
}

// lendPassword writes the password's SCRAM secret for initdb to a file in the socket's folder, which only
// the account can read.
func (l *launch) lendPassword(password string) (string, error) {
	path := filepath.Join(l.socketDir, "password")
	secret, err := scramSecret(password)
	if err == nil {
		err = os.WriteFile(path, []byte(secret+"\n"), 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("cannot pass the password to initdb: %w", err)
	}
	if err := l.account.own(path); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return path, nil
}

// scramSecret returns the SCRAM secret that Postgres stores for a password (RFC 5803), with one iteration
// instead of 4096. Iterations slow down guessing, which is hopeless against 130 random bits, and cost
// each new connection a millisecond.
func scramSecret(password string) (string, error) {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	salted, err := pbkdf2.Key(sha256.New, password, salt, 1, sha256.Size)
	if err != nil {
		return "", err
	}
	key := func(name string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(name))
		return mac.Sum(nil)
	}
	stored := sha256.Sum256(key("Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$1:%s$%s:%s", encode(salt), encode(stored[:]), encode(key("Server Key"))), nil
}
