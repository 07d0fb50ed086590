package pgdev_test

import (
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/pgdev"
)

// socketFolder returns the folder of the socket in the URL of a server.
func socketFolder(t *testing.T, server *pgdev.Server) string {
	t.Helper()
	address, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	return address.Query().Get("host")
}

func leftovers(t *testing.T, server *pgdev.Server) []string {
	t.Helper()
	left, err := filepath.Glob(socketFolder(t, server) + "*")
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// expectedUser returns the user id that must run the server: the user of this process, unless that is root.
func expectedUser(t *testing.T) int {
	t.Helper()
	if os.Geteuid() != 0 {
		return os.Geteuid()
	}
	found, err := user.Lookup("postgres")
	if err != nil {
		if found, err = user.Lookup("nobody"); err != nil {
			t.Fatal(err)
		}
	}
	uid, err := strconv.Atoi(found.Uid)
	if err != nil {
		t.Fatal(err)
	}
	return uid
}

func owner(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

func TestServerRunsUnprivilegedAndShutOff(t *testing.T) {
	t.Parallel()
	dir := openFolder(t)
	server := open(t, pgdev.Options{Dir: dir})
	want := expectedUser(t)
	for _, path := range []string{
		filepath.Join(dir, "data"),
		socketFolder(t, server),
		filepath.Join("/proc", strconv.Itoa(pid(t, dir))),
	} {
		if _, err := os.Stat("/proc/self"); err != nil && strings.HasPrefix(path, "/proc") {
			continue // this system has no /proc
		}
		if got := owner(t, path); got != want {
			t.Errorf("%s belongs to user id %d, want %d", path, got, want)
		}
	}
	for path, want := range map[string]os.FileMode{
		filepath.Join(dir, "password"): 0o600,
		socketFolder(t, server):        0o700,
		filepath.Join(dir, "data"):     0o700,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
	if got := ask(t, server.URL(), "select coalesce(inet_server_addr()::text, 'socket')"); got != "socket" {
		t.Errorf("connected to %s", got)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	names := []string{"fsync", "synchronous_commit", "full_page_writes", "max_connections", "listen_addresses",
		"TimeZone", "work_mem", "password_encryption"}
	cases := map[string]struct {
		opts pgdev.Options
		want []string
	}{
		"careful": {
			opts: pgdev.Options{},
			want: []string{"on", "on", "on", "200", "", "UTC", "4MB", "scram-sha-256"},
		},
		"quick": {
			opts: pgdev.Options{Quick: true},
			want: []string{"off", "off", "off", "200", "", "UTC", "4MB", "scram-sha-256"},
		},
		"given": {
			opts: pgdev.Options{Quick: true, Settings: map[string]string{"work_mem": "7MB", "max_connections": "33",
				"listen_addresses": "*"}},
			want: []string{"off", "off", "off", "33", "", "UTC", "7MB", "scram-sha-256"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.opts.Dir = usedFolder(t)
			server := open(t, c.opts)
			got := make([]string, len(names))
			for i, setting := range names {
				got[i] = ask(t, server.URL(), "select current_setting('"+setting+"')")
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("settings %v (-want +got):\n%s", names, diff)
			}
			if got := ask(t, server.URL(),
				"select current_database() || ' ' || current_user || ' ' || usesuper from pg_user where usename = current_user"); got != "turnkeeper turnkeeper true" {
				t.Errorf("database, user, superuser: %s", got)
			}
		})
	}
}

func TestPasswordIsWanted(t *testing.T) {
	t.Parallel()
	server := open(t, pgdev.Options{Dir: openFolder(t), Quick: true})
	address, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword("turnkeeper", "guess")
	if err := connect(t, address.String()); err == nil || !strings.Contains(err.Error(), "28P01") {
		t.Errorf("a wrong password was answered with %v", err)
	}
}

func TestOddNames(t *testing.T) {
	t.Parallel()
	names := map[string]string{
		"signs": "it's a \"first\" $HOME;b`c`&d,e%f=g agent",
		"long":  strings.Repeat("папка-文件夹/", 10) + "end",
	}
	for name, folder := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(openFolder(t), folder)
			server := open(t, pgdev.Options{Dir: dir, Quick: true})
			ask(t, server.URL(), "create table letters as select 'kept' as body")
			closeServer(t, server)
			again := open(t, pgdev.Options{Dir: dir, Quick: true})
			if got := ask(t, again.URL(), "select body from letters"); got != "kept" {
				t.Errorf("the row reads %q", got)
			}
		})
	}
}

func TestFolderThatMovedWithItsServer(t *testing.T) {
	t.Parallel()
	base := openFolder(t)
	before, after := filepath.Join(base, "before"), filepath.Join(base, "after")
	left := startGuest(t, before)
	server := pid(t, before)
	left.kill(t)
	if err := os.Rename(before, after); err != nil {
		t.Fatal(err)
	}
	heir := open(t, pgdev.Options{Dir: after, Quick: true})
	if got := pid(t, after); got != server {
		t.Errorf("server %d was started beside %d on the same data", got, server)
	}
	closeServer(t, heir)
	eventually(t, "the server ends", func() bool { return !alive(server) })
}

// TestClosedFolder opens a folder that only its owner may enter, like those of os.MkdirTemp.
func TestClosedFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openFolder(t), "closed")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	open(t, pgdev.Options{Dir: dir, Quick: true})
	info, err := os.Lstat(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	if !info.IsDir() {
		t.Errorf("the data is not in the folder: %v", info.Mode())
	}
	info, err = os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm()&0o067 != 0 {
		t.Errorf("the folder was opened to more than passing through: %v", info.Mode())
	}
}

// elsewhere creates three folders: one that only its owner can enter, one for temporary files, and one for root's
// servers.
func elsewhere(t *testing.T) (closed, temporary, system string) {
	t.Helper()
	closed = filepath.Join(openFolder(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	temporary, system = openFolder(t), openFolder(t)
	if err := os.Chmod(temporary, 0o1777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temporary)
	pgdev.SetPlaces(t, "http://127.0.0.1:1", system, t.TempDir())
	return closed, temporary, system
}

// whereData returns the folder of the data of a server, with symbolic links resolved.
func whereData(t *testing.T, dir string) string {
	t.Helper()
	where, err := filepath.EvalSymlinks(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	return where
}

func TestFolderThatTheServerCannotEnter(t *testing.T) {
	closed, _, system := elsewhere(t)
	dir := filepath.Join(closed, "turnkeeper")
	server := open(t, pgdev.Options{Dir: dir, Quick: true})
	ask(t, server.URL(), "create table letters as select 'kept' as body")
	closeServer(t, server)
	again := open(t, pgdev.Options{Dir: dir, Quick: true})
	if got := ask(t, again.URL(), "select body from letters"); got != "kept" {
		t.Errorf("after a restart the row reads %q", got)
	}
	want := dir // the server runs as this user
	if os.Geteuid() == 0 {
		want = system
	}
	if where := whereData(t, dir); !strings.HasPrefix(where, want+"/") {
		t.Errorf("the data is in %s, want it in %s", where, want)
	}
}

// TestDataOutlivesARenamedHome checks that data stored outside its home is kept and found again after the home was
// renamed and another home was opened.
func TestDataOutlivesARenamedHome(t *testing.T) {
	_, temporary, _ := elsewhere(t)
	closed := filepath.Join(temporary, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	before, after := filepath.Join(closed, "before"), filepath.Join(closed, "after")
	first := open(t, pgdev.Options{Dir: before, Quick: true})
	ask(t, first.URL(), "create table letters as select 'kept' as body")
	closeServer(t, first)
	if err := os.Rename(before, after); err != nil {
		t.Fatal(err)
	}
	closeServer(t, open(t, pgdev.Options{Dir: filepath.Join(closed, "another"), Quick: true}))

	again := open(t, pgdev.Options{Dir: after, Quick: true})
	if got := ask(t, again.URL(), "select body from letters"); got != "kept" {
		t.Errorf("after its home was renamed the row reads %q", got)
	}
	if os.Geteuid() != 0 {
		return // the data is in its home
	}
	record, err := os.ReadFile(filepath.Join(filepath.Dir(whereData(t, after)), "home"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(record)); got != after {
		t.Errorf("the data is said to be of %s, want %s", got, after)
	}
}

func TestLinkToDataThatIsNotThere(t *testing.T) {
	t.Parallel()
	dir := openFolder(t)
	if err := os.Symlink("/nowhere/data", filepath.Join(dir, "data")); err != nil {
		t.Fatal(err)
	}
	_, err := pgdev.Open(t.Context(), pgdev.Options{Dir: dir, Quick: true})
	if err == nil || !strings.Contains(err.Error(), "links to /nowhere/data") ||
		strings.Contains(err.Error(), "remove") {
		t.Errorf("the error is %v", err)
	}
}

// TestNoFolderForTheServerAtAll checks the error for root. For any other user the server runs as that user, and can
// enter the folder.
func TestNoFolderForTheServerAtAll(t *testing.T) {
	closed, _, _ := elsewhere(t)
	pgdev.SetPlaces(t, "http://127.0.0.1:1", filepath.Join(closed, "elsewhere"), closed)
	server, err := pgdev.Open(t.Context(), pgdev.Options{Dir: filepath.Join(closed, "dir"), Quick: true})
	if os.Geteuid() != 0 {
		if err != nil {
			t.Fatal(err)
		}
		closeServer(t, server)
		return
	}
	if err == nil {
		closeServer(t, server)
		t.Fatal("a server runs in a folder that it cannot enter")
	}
	for _, part := range []string{"who runs Postgres because it refuses root",
		"use a folder that all users can enter, or set DATABASE_URL"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
}
