package pgdev_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/internal/pgdev"
)

func TestDataIsKeptOverARestart(t *testing.T) {
	t.Parallel()
	dir := openFolder(t)
	core, logged := observer.New(zap.InfoLevel)
	making := func() int {
		return logged.FilterMessageSnippet("creating a private Postgres in " + dir).Len()
	}
	first := open(t, pgdev.Options{Dir: dir, Log: zap.New(core)})
	ask(t, first.URL(), "create table letters as select 'kept' as body")
	closeServer(t, first)
	if got := making(); got != 1 {
		t.Errorf("%d lines before the data is made, want 1", got)
	}

	second := open(t, pgdev.Options{Dir: dir, Log: zap.New(core)})
	if got := making(); got != 1 {
		t.Error("the data is said to be made again")
	}
	if got := ask(t, second.URL(), "select body from letters"); got != "kept" {
		t.Errorf("after a restart the row reads %q", got)
	}
}

func TestLastOneOutStopsTheServer(t *testing.T) {
	t.Parallel()
	dir := usedFolder(t)
	starter := startGuest(t, dir)
	server := pid(t, dir)
	us := open(t, pgdev.Options{Dir: dir})
	if us.URL() != starter.url {
		t.Error("the second process was given another server")
	}
	if got := pid(t, dir); got != server {
		t.Fatalf("the second process started server %d beside %d", got, server)
	}

	starter.leave(t)
	if got := ask(t, us.URL(), "select 'still here'"); got != "still here" {
		t.Errorf("after the starter left, the server says %q", got)
	}
	closeServer(t, us)
	if alive(server) {
		t.Errorf("server %d runs on after its last user", server)
	}
	if left := leftovers(t, us); len(left) != 0 {
		t.Errorf("the socket's folder is left: %v", left)
	}
}

func TestTwoSharesInOneProcess(t *testing.T) {
	t.Parallel()
	dir := usedFolder(t)
	first, second := open(t, pgdev.Options{Dir: dir, Quick: true}), open(t, pgdev.Options{Dir: dir, Quick: true})
	server := pid(t, dir)
	closeServer(t, first)
	closeServer(t, first) // closing a share twice does not affect others
	ask(t, second.URL(), "select 1::text")
	closeServer(t, second)
	if alive(server) {
		t.Errorf("server %d runs on after its last user", server)
	}
}

func TestManyStartersStartOneServer(t *testing.T) {
	t.Parallel()
	dir := openFolder(t)
	urls := make([]string, 6)
	errs := make([]error, len(urls))
	servers := make([]*pgdev.Server, len(urls))
	var all sync.WaitGroup
	for i := range urls {
		all.Go(func() {
			servers[i], errs[i] = pgdev.Open(t.Context(), pgdev.Options{Dir: dir, Quick: true})
			if errs[i] == nil {
				urls[i] = servers[i].URL()
			}
		})
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
		if urls[i] != urls[0] {
			t.Errorf("starter %d was given another server", i)
		}
	}
	server := pid(t, dir)
	for i, s := range servers {
		all.Go(func() { errs[i] = s.Close(t.Context()) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if alive(server) {
		t.Errorf("server %d runs on after its last user", server)
	}
}

func TestServerOfAKilledProcessIsJoined(t *testing.T) {
	t.Parallel()
	dir := usedFolder(t)
	owner := startGuest(t, dir)
	server := pid(t, dir)
	ask(t, owner.url, "create table letters as select 'kept' as body")
	owner.kill(t)

	heir := startGuest(t, dir)
	if got := pid(t, dir); got != server {
		t.Errorf("server %d was started, although %d was left running", got, server)
	}
	if got := ask(t, heir.url, "select body from letters"); got != "kept" {
		t.Errorf("the row reads %q", got)
	}
	heir.leave(t)
	eventually(t, "the server that was left behind ends with its last user", func() bool { return !alive(server) })
}

func TestFolderOfAKilledServerIsTakenOver(t *testing.T) {
	t.Parallel()
	dir := usedFolder(t)
	owner := startGuest(t, dir)
	ask(t, owner.url, "create table letters as select 'kept' as body")
	server := pid(t, dir)
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	// The owner is alive and has not waited for the server, so the process id is still in use.
	heir := open(t, pgdev.Options{Dir: dir, Quick: true})
	if got := ask(t, heir.URL(), "select body from letters"); got != "kept" {
		t.Errorf("after the server was killed the row reads %q", got)
	}
	if heir.URL() != owner.url {
		t.Error("the address that the owner holds leads nowhere now")
	}
	owner.leave(t)
}

// TestAStartThatFailsKeepsTheAddress checks that a failed start, as on a full disk, keeps the address: processes that
// outlived the server wait for it there.
func TestAStartThatFailsKeepsTheAddress(t *testing.T) {
	t.Parallel()
	dir := usedFolder(t)
	outliving := open(t, pgdev.Options{Dir: dir})
	server := pid(t, dir)
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server to be gone", func() bool { return !outliving.Alive() })
	for range 2 {
		if _, err := pgdev.Open(t.Context(), pgdev.Options{Dir: dir,
			Settings: map[string]string{"no_such_setting": "1"}}); err == nil {
			t.Fatal("it started with a setting that does not exist")
		}
	}
	again := open(t, pgdev.Options{Dir: dir})
	if again.URL() != outliving.URL() {
		t.Errorf("it came back at %s, not at %s", socketFolder(t, again), socketFolder(t, outliving))
	}
	if got := ask(t, outliving.URL(), "select 1"); got != "1" {
		t.Errorf("it answers %q", got)
	}
}

func TestProcessIDOfAKilledServerGivenToAnother(t *testing.T) {
	t.Parallel()
	dir, otherDir := openFolder(t), openFolder(t)
	first := open(t, pgdev.Options{Dir: dir, Quick: true})
	file := filepath.Join(dir, "data", "postmaster.pid")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	closeServer(t, first)

	// After a reboot, the file may name another live process of the server's user. Postgres itself would refuse to
	// start.
	open(t, pgdev.Options{Dir: otherDir, Quick: true})
	other := pid(t, otherDir)
	_, rest, _ := strings.Cut(string(text), "\n")
	write(t, file, strconv.Itoa(other)+"\n"+rest)

	second := open(t, pgdev.Options{Dir: dir, Quick: true})
	ask(t, second.URL(), "select 1::text")
	closeServer(t, second)
	if !alive(other) {
		t.Error("the other process was stopped")
	}
}

func TestServerIsNotInOurSession(t *testing.T) {
	t.Parallel()
	dir := usedFolder(t)
	open(t, pgdev.Options{Dir: dir, Quick: true})
	server := pid(t, dir)
	group, err := syscall.Getpgid(server)
	if err != nil {
		t.Fatal(err)
	}
	if group != server || group == syscall.Getpgrp() {
		t.Errorf("server %d is in process group %d: Ctrl-C would stop it under the program", server, group)
	}
}

func TestCloseTellsTheServerToStopEvenWithoutTime(t *testing.T) {
	t.Parallel()
	dir := usedFolder(t)
	server := open(t, pgdev.Options{Dir: dir, Quick: true})
	id := pid(t, dir)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = server.Close(ended) // may time out
	eventually(t, "the server ends", func() bool {
		_, err := os.Stat(filepath.Join(dir, "data", "postmaster.pid"))
		return os.IsNotExist(err)
	})
	// The next Open waits until the old server is gone, and starts a new one.
	next := open(t, pgdev.Options{Dir: dir, Quick: true})
	if got := pid(t, dir); got == id {
		t.Errorf("server %d was told to stop and runs", got)
	}
	ask(t, next.URL(), "select 1::text")
}
