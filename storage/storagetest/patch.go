package storagetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// PatchVariable names a folder with a schema change, which dev/mutants makes:
//
//	patch.sql   runs in the template, after the migrations
//	last.sql    optional, runs in each database before it is dropped; its rows are
//	            appended to last.txt, one line each
const PatchVariable = "TURNKEEPER_TEST_PATCH"

// A patch is the schema change of PatchVariable, or empty.
type patch struct{ folder, sql, last string }

func readPatch() (patch, error) {
	folder, set := syscall.Getenv(PatchVariable) // see startServer
	if !set {
		return patch{}, nil
	}
	sql, err := os.ReadFile(filepath.Join(folder, "patch.sql"))
	if err != nil {
		return patch{}, err
	}
	last, err := os.ReadFile(filepath.Join(folder, "last.sql"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return patch{folder, string(sql), string(last)}, err
}

// hash returns the part of the template's name that identifies the patch.
func (p patch) hash() string {
	sum := sha256.Sum256([]byte(p.sql))
	return hex.EncodeToString(sum[:8])
}

// report runs last.sql in a database and appends its rows to last.txt.
func (p patch) report(ctx context.Context, url string) error {
	if p.last == "" {
		return nil
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, _ := conn.Query(ctx, p.last)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, line := range lines {
		text.WriteString(line + "\n")
	}
	f, err := os.OpenFile(filepath.Join(p.folder, "last.txt"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text.Bytes()) // one write, because other processes append too
	return errors.Join(err, f.Close())
}
