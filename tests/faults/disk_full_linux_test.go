package faults_test

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/pgdev"
	"turnkeeper/storage/storagetest"
	"turnkeeper/tests/internal/env"
)

// A smallDisk is a file system that the test can fill.
type smallDisk struct {
	t   testing.TB
	dir string
}

// newSmallDisk needs permission to mount. TestRaisedErrors covers the server's error of a full disk without
// it.
func newSmallDisk(t testing.TB, megabytes int) *smallDisk {
	t.Helper()
	dir := env.SharedDir(t)
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=755", megabytes))
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		t.Skip("a small disk needs permission to mount one")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return &smallDisk{t, dir}
}

func (d *smallDisk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill leaves no free byte.
func (d *smallDisk) fill() {
	file, err := os.Create(d.ballast())
	if err != nil {
		d.t.Error(err)
		return
	}
	defer func() { _ = file.Close() }()
	if _, err := io.Copy(file, zeros{}); !errors.Is(err, syscall.ENOSPC) {
		d.t.Errorf("filling the disk ended with %v", err)
	}
}

func (d *smallDisk) free() {
	if err := os.Remove(d.ballast()); err != nil {
		d.t.Error(err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// incompressible returns text that does not compress.
func incompressible(length int) string {
	b := make([]byte, length)
	_, _ = rand.Read(b) // never fails
	return base64.StdEncoding.EncodeToString(b)[:length]
}

// The disk is full: first Postgres has no space for the writes of a turn and of a sender, then none for its
// log, so it crashes. Effects do not run, messages are refused with a plain error, and everything continues
// when there is space.
func TestTheDiskIsFull(t *testing.T) {
	t.Parallel()
	disk := newSmallDisk(t, 300)
	dir := filepath.Join(disk.dir, "postgres")
	// Keep little of the log, so that it soon needs more space.
	options := pgdev.Options{Dir: dir, Settings: map[string]string{"min_wal_size": "32MB", "max_wal_size": "32MB",
		"wal_recycle": "off"}}
	server := startPostgresWith(t, options)
	migrate(t, server.URL())
	e := env.NewOn(t, server.URL())
	p := behindProxy(e)
	e.WriteAgent("clerk", env.MarkerTools, "lane: conversation")
	var tried atomic.Int64
	p.Plan(func(s storagetest.Sent) storagetest.Cut {
		if s.Has("name: AppendMany ") {
			tried.Add(1)
		}
		return storagetest.Pass
	})
	for name, breakLog := range map[string]bool{"no room for rows": false, "no room for the log": true} {
		full := make(chan struct{})
		ask := inferencetest.Call{ID: "call_once", Name: "mark_once", Arguments: fmt.Sprintf(`{"label":%q}`, name)}
		e.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
			return env.Rounds(meanwhile(func() {
				disk.fill()
				if breakLog {
					exhaustLog(e)
				}
				tried.Store(0)
				close(full)
			}, inferencetest.Message(incompressible(40_000), ask)), inferencetest.Text("Done."))(r)
		})
		if e.Workers == 0 {
			e.StartWorker()
		}
		message := env.Query[int64](e, "select turnkeeper.enqueue('clerk', $1, $1)", name)
		<-full
		r := e.Run(incompressible(60_000), "enqueue", "--agent", "clerk", "-")
		if r.Code != 1 || !plainSentence(r.Stderr) {
			t.Errorf("%s: enqueue ended with %d and printed %q", name, r.Code, r.Stderr)
		}
		t.Logf("%s: enqueue printed %q", name, r.Stderr)
		if !breakLog {
			e.Poll("the start was tried again and again", func() bool { return tried.Load() >= 3 })
		}
		e.Ledger.WantRuns(name, 0)
		disk.free()
		startPostgresWith(t, options)
		e.AwaitClosed(message)
		e.Ledger.WantRuns(name, 1)
		if got := env.Query[string](e, "select outcome || ': ' || body from replies where message_id = $1",
			message); got != "succeeded: Done." {
			t.Errorf("%s: the reply is %q", name, got)
		}
	}
}

// exhaustLog makes the server need space for its log until it crashes.
func exhaustLog(e *env.Env) {
	for range 100 {
		if _, err := e.DB.Exec(e.T.Context(),
			"select pg_switch_wal(), pg_logical_emit_message(false, 'test', repeat('x', 1000))"); err != nil {
			return
		}
	}
	e.T.Error("the server found room for its log")
}
