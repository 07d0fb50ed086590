package pgdev

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"turnkeeper/internal/golden"
)

// put writes a file, and the folders above it.
func put(t *testing.T, text string, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func launchIn(dir string) *launch {
	return &launch{home: home{dir}, log: zap.NewNop(), account: account{name: "this user", uid: os.Geteuid(),
		gid: os.Getegid()}}
}

// TestEverySettingOfTheServer records the settings of each kind of server: those of the options win, except where it
// listens and logs.
func TestEverySettingOfTheServer(t *testing.T) {
	t.Parallel()
	var written strings.Builder
	own := map[string]string{"jit": "on", "shared_buffers": "1MB", "port": "1", "listen_addresses": "*",
		"log_statement": "all"}
	// one does not change the next
	for _, opts := range []Options{{}, {Quick: true}, {Settings: own}, {Quick: true, Settings: own}, {}} {
		l := launchIn("/home")
		l.opts, l.socketDir = opts, `/tmp/a "b", c`
		fmt.Fprintf(&written, "quick %t, %d of its own\n", opts.Quick, len(opts.Settings))
		args := arguments(l.settings())
		for pair := range slices.Chunk(args, 2) {
			fmt.Fprintf(&written, "  %s\n", strings.Join(pair, " "))
		}
	}
	fmt.Fprintf(&written, "%s\n", address("/tmp/a b", "p@ss/w", "other"))
	golden.File(t, filepath.Join("testdata", "settings.txt"), written.String())
}

// TestEveryFolder records what is said of each state of a folder.
func TestEveryFolder(t *testing.T) {
	t.Parallel()
	var written strings.Builder
	for _, c := range []struct {
		title string
		make  func(dir string)
	}{
		{"empty", func(string) {}},
		{"a cluster", func(dir string) {
			put(t, " 17\n", dir, "data", "PG_VERSION")
			put(t, "secret\n", dir, "password")
		}},
		{"a folder that is none", func(dir string) { put(t, "x", dir, "data", "x") }},
		{"a file", func(dir string) { put(t, "x", dir, "data") }},
		{"a link to nothing", func(dir string) { _ = os.Symlink("/no/such/folder", filepath.Join(dir, "data")) }},
		{"a version that is none", func(dir string) { put(t, "x\n", dir, "data", "PG_VERSION") }},
	} {
		dir := t.TempDir()
		c.make(dir)
		has, err := home{dir}.hasCluster()
		major, noMajor := clusterMajor(home{dir})
		password, noPassword := home{dir}.readPassword()
		text := fmt.Sprintf("%s: made %t, runs %t, has a cluster %t: %v\n  version %d: %v\n  password %q: %v\n",
			c.title, Made(dir), Runs(dir), has, err, major, noMajor, password, noPassword)
		written.WriteString(strings.ReplaceAll(text, dir, "DIR"))
	}
	for _, found := range [][]install{nil, {{"/a", 12}}, {{"/a", 12}, {"/b", 13}, {"/c", 17}},
		{{"/c", 17}, {"/b", 13}}} {
		for _, want := range []int{0, 12, 13, 17, 18} {
			in, err := choose(found, want)
			fmt.Fprintf(&written, "of %v for data of %d: %v, %v\n", found, want, in, err)
		}
	}
	for _, code := range []string{"57P03", "53300", "28P01", ""} {
		fmt.Fprintf(&written, "%q passes: %t\n", code, comingOrGoing(&pgconn.PgError{Code: code}))
	}
	golden.File(t, filepath.Join("testdata", "folders.txt"), written.String())
}

// TestWhichProcessIsTheServer checks that a process is the server only if its pid file and its command line say so.
func TestWhichProcessIsTheServer(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("this system has no /proc")
	}
	me := strconv.Itoa(os.Getpid())
	said, err := os.ReadFile("/proc/self/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(string(said), "\x00") // the program, its arguments, and an empty text
	argument := args[1]
	if argument == "" {
		t.Skip("the test has no arguments")
	}
	for text, want := range map[string]bool{
		"":                                false,
		me:                                false,
		me + "\n":                         false,
		me + "\n" + argument + "\n1\n2\n": true,
		me + "\n" + argument[1:] + "\n":   false,
		me + "\n/no/such/data\n":          false,
		"x\n" + argument + "\n":           false,
		"1\n/sbin/init\n":                 false,
		"-1\n" + argument + "\n":          false,
	} {
		dir := t.TempDir()
		put(t, text, dir, "data", "postmaster.pid")
		if p, running := (home{dir}).postmaster(); running != want || running != Runs(dir) || want &&
			(p.pid != os.Getpid() || p.data != argument) {
			t.Errorf("%q: %+v, %t", text, p, running)
		}
		err := home{dir}.removeStale()
		if _, gone := os.Stat(home{dir}.pidFile()); err != nil || errors.Is(gone, os.ErrNotExist) == want {
			t.Errorf("%q: the pid file after it: %v, %v", text, gone, err)
		}
	}
	if err := (home{t.TempDir()}).removeStale(); err != nil {
		t.Errorf("no pid file: %v", err)
	}
}

// TestLocksOfFiles checks who excludes whom, and that a wait ends with its cause.
func TestLocksOfFiles(t *testing.T) {
	t.Parallel()
	stop := errors.New("enough")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	for _, c := range []struct {
		held, wanted int
		free         bool
	}{{exclusive, exclusive, false}, {exclusive, shared, false}, {shared, exclusive, false}, {shared, shared, true}} {
		path := filepath.Join(t.TempDir(), "lock")
		first, err := acquire(ended, path, c.held) // it tries once
		if err != nil {
			t.Fatal(err)
		}
		second, err := acquire(ended, path, c.wanted)
		if (err == nil) != c.free || err != nil && (!errors.Is(err, stop) || !strings.Contains(err.Error(),
			"another process keeps "+path+" locked")) {
			t.Errorf("%d beside %d: %v", c.wanted, c.held, err)
		}
		if c.free {
			if err := first.upgrade(); !errors.Is(err, errLocked) {
				t.Errorf("a lock that two share becomes exclusive: %v", err)
			}
			second.release()
			if err := first.upgrade(); err != nil {
				t.Errorf("a lock that one has does not become exclusive: %v", err)
			}
			if _, err := acquire(ended, path, shared); err == nil {
				t.Error("an upgraded lock is shared")
			}
		}
		first.release()
		if third, err := acquire(ended, path, exclusive); err != nil {
			t.Errorf("after its release: %v", err)
		} else {
			third.release()
		}
	}
	if _, err := acquire(t.Context(), filepath.Join(t.TempDir(), "none", "lock"), shared); err == nil ||
		!strings.Contains(err.Error(), "cannot open the lock file") {
		t.Errorf("no folder: %v", err)
	}
}

// TestTheLogOfTheServer checks which part of the log a failure quotes, and when a long log is put aside.
func TestTheLogOfTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := launchIn(dir)
	if err := l.failure("broke", nil); err.Error() != "the private Postgres in "+dir+" broke (its log is "+
		filepath.Join(dir, "log")+")" {
		t.Errorf("without a log: %v", err)
	}
	put(t, "FATAL:  of before\npre-existing shared memory block\n", dir, "log")
	l.noteLog()
	if text := l.written(); text != "" || l.memoryStillHeld() {
		t.Errorf("written before: %q", text)
	}
	file, err := l.openLog()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = file.WriteString("FATAL:  of now\nHINT:  Look.\npre-existing shared memory block\n")
	_ = file.Close()
	cause := errors.New("the cause")
	if err := l.failure("broke", cause); !errors.Is(err, cause) ||
		err.Error() != "the private Postgres in "+dir+" broke: of now Look. (its log is "+filepath.Join(dir, "log")+
			"): the cause" || !l.memoryStillHeld() {
		t.Errorf("%v", err)
	}
	l.logged = 0
	put(t, "FATAL:  early\n"+strings.Repeat("x", 64<<10), dir, "log")
	if got := len(l.written()); got != 64<<10 {
		t.Errorf("%d bytes of a long log are read", got)
	}
	for _, size := range []int64{16 << 20, 16<<20 + 1} { // in this order: nothing removes log.old
		aside := size > 16<<20
		if err := os.Truncate(filepath.Join(dir, "log"), size); err != nil {
			t.Fatal(err)
		}
		l.noteLog()
		file, err := l.openLog()
		if err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
		old, err := os.Stat(filepath.Join(dir, "log.old"))
		if (err == nil) != aside || aside && (old.Size() != size || l.logged != 0) {
			t.Errorf("a log of %d bytes: put aside %t, of which %d are old", size, err == nil, l.logged)
		}
	}
}

// TestTheSocketsFolder checks which folder is used again, what is removed in it, and what is forgotten.
func TestTheSocketsFolder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode  os.FileMode
		again bool
	}{"its own": {0o700, true}, "open to a group": {0o710, false}, "closed": {0o600, false}} {
		dir, socket := t.TempDir(), filepath.Join(t.TempDir(), "socket")
		l := launchIn(dir)
		l.install = install{bin: programs(t)}
		for _, file := range []string{socketName, socketName + ".lock", "password"} {
			put(t, "", socket, file)
		}
		put(t, socket+"\n", dir, "socket")
		if err := os.Chmod(socket, c.mode); err != nil {
			t.Fatal(err)
		}
		if err := l.prepareSocketDir(t.Context()); err != nil {
			t.Fatal(err)
		}
		if (l.socketDir == socket) != c.again || l.madeSocketDir == c.again ||
			l.home.recordedSocketDir() != l.socketDir {
			t.Errorf("%s: the folder is %s, made %t, recorded %s", name, l.socketDir, l.madeSocketDir,
				l.home.recordedSocketDir())
		}
		if c.again {
			if left, _ := filepath.Glob(filepath.Join(socket, "*")); len(left) != 1 {
				t.Errorf("left in it: %q", left)
			}
			if left, _ := filepath.Glob(filepath.Join(socket, ".s*")); len(left) != 0 {
				t.Errorf("left in it: %q", left)
			}
		}
		l.home.forgetSocketDir()
		if _, err := os.Stat(l.socketDir); !errors.Is(err, os.ErrNotExist) || l.home.recordedSocketDir() != "" {
			t.Errorf("%s is not forgotten: %v", name, err)
		}
	}
	dir := t.TempDir()
	put(t, "..\n", dir, "socket")
	if (home{dir}).forgetSocketDir(); (home{dir}).recordedSocketDir() != ".." {
		t.Error("a folder that is no path is removed")
	}
	l := launchIn(dir)
	l.install = install{bin: programs(t)}
	for length, fits := range map[int]bool{maxSocketPath: true, maxSocketPath + 1: false} {
		long := filepath.Join("/tmp", strings.Repeat("x", length-len("/tmp/")-len("/"+socketName+".lock")))
		if err := os.Mkdir(long, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := l.fits(t.Context(), long); (err == nil) != fits {
			t.Errorf("a path of %d bytes: %v", length, err)
		}
		_ = os.Remove(long)
	}
}

// programs makes a folder with programs that do nothing, which every user can enter.
func programs(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgdev-programs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, name := range []string{"postgres", "initdb"} {
		put(t, "#!/bin/sh\necho 'postgres (PostgreSQL) 17.1'\n", dir, name)
		if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Join(dir, name), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTheSecretOfAPassword checks a stored secret as a client and a server would (RFC 5802).
func TestTheSecretOfAPassword(t *testing.T) {
	t.Parallel()
	first, err := scramSecret("open sesame")
	if err != nil {
		t.Fatal(err)
	}
	again, _ := scramSecret("open sesame")
	if first == again {
		t.Error("two secrets have one salt")
	}
	rest, ok := strings.CutPrefix(first, "SCRAM-SHA-256$1:")
	salt64, keys, _ := strings.Cut(rest, "$")
	stored, server, _ := strings.Cut(keys, ":")
	salt, err := base64.StdEncoding.DecodeString(salt64)
	if err != nil || !ok || len(salt) != 16 {
		t.Fatalf("%s: %v", first, err)
	}
	salted, err := pbkdf2.Key(sha256.New, "open sesame", salt, 1, 32)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(text string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	client := sha256.Sum256(sign("Client Key"))
	if want := base64.StdEncoding.EncodeToString(client[:]); stored != want {
		t.Errorf("the stored key is %s, want %s", stored, want)
	}
	if want := base64.StdEncoding.EncodeToString(sign("Server Key")); server != want {
		t.Errorf("the server's key is %s, want %s", server, want)
	}
}

// TestWhoRunsTheServer checks the account for data of each owner, and what it may do.
func TestWhoRunsTheServer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can choose")
	}
	dir := t.TempDir()
	put(t, "17\n", dir, "data", "PG_VERSION")
	if _, err := serverAccount(home{dir}, true); err == nil || !strings.Contains(err.Error(),
		"belongs to root, and Postgres refuses to run as root") {
		t.Errorf("data of root: %v", err)
	}
	if a, err := serverAccount(home{dir}, false); err != nil || a.uid == 0 || !a.drop {
		t.Errorf("no data: %+v, %v", a, err)
	}
	if err := os.Chown(filepath.Join(dir, "data"), 65534, -1); err != nil {
		t.Fatal(err)
	}
	nobody, err := serverAccount(home{dir}, true)
	if diff := cmp.Diff(account{name: "the user nobody", uid: 65534, gid: nobody.gid, drop: true}, nobody,
		cmp.AllowUnexported(account{})); err != nil || diff != "" {
		t.Fatalf("data of nobody: %v\n%s", err, diff)
	}
	if c := nobody.credential(); c.Uid != 65534 || int(c.Gid) != nobody.gid {
		t.Errorf("it runs as %+v", c)
	}
	file := filepath.Join(dir, "file")
	put(t, "", file)
	if err := nobody.own(file); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Sys().(*syscall.Stat_t).Uid != 65534 ||
		int(info.Sys().(*syscall.Stat_t).Gid) != nobody.gid {
		t.Errorf("the file belongs to %+v, %v", info.Sys(), err)
	}
	if err := os.Chown(filepath.Join(dir, "data"), 4_000_000, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := serverAccount(home{dir}, true); err == nil || !strings.Contains(err.Error(),
		"found no unprivileged user") {
		t.Errorf("data of nobody's: %v", err)
	}
}

// TestDataElsewhere checks the folder for data of a server that cannot enter its home, its record, and what of it is
// discarded.
func TestDataElsewhere(t *testing.T) {
	l := launchIn(t.TempDir())
	if _, err := l.reserveElsewhere(t.Context()); err == nil || err.Error() != "cannot run a server program in "+
		l.home.dir {
		t.Errorf("this user's: %v", err)
	}
	if os.Geteuid() != 0 {
		return
	}
	base, err := os.MkdirTemp("", "pgdev-elsewhere-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	SetPlaces(t, "", filepath.Join(base, "system"), "")
	l.install = install{bin: programs(t)}
	l.account = account{name: "the user nobody", uid: 65534, gid: 65534, drop: true}
	_, err = l.reserveElsewhere(t.Context())
	if want := "the user nobody, who runs Postgres because it refuses root, can enter neither " + l.home.dir + " nor " +
		systemHome + ": use"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("a closed folder: %v", err)
	}
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	data, err := l.reserveElsewhere(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{data: 0o700, filepath.Dir(data): 0o711} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	record := filepath.Join(filepath.Dir(data), "home")
	moved := launchIn(t.TempDir())
	for _, c := range []struct {
		by   *launch
		want string
	}{{l, l.home.dir}, {moved, moved.home.dir}} {
		c.by.recordAgain(data)
		if text, err := os.ReadFile(record); err != nil || string(text) != c.want+"\n" {
			t.Errorf("the data's home is %q, %v", text, err)
		}
	}
	other := filepath.Join(base, "other", "data")
	if err := os.MkdirAll(other, 0o700); err != nil {
		t.Fatal(err)
	}
	l.recordAgain(other)
	l.recordAgain(l.home.data())
	for _, dir := range []string{filepath.Dir(other), l.home.dir} {
		if _, err := os.Lstat(filepath.Join(dir, "home")); err == nil {
			t.Errorf("a record is in %s", dir)
		}
	}
	l.discard(data)
	if _, err := os.Stat(filepath.Dir(data)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
	unfinished := filepath.Join(l.home.dir, "data.new")
	put(t, "", unfinished, "x")
	put(t, "", l.home.dir, "password")
	l.discard(unfinished)
	if Made(l.home.dir) {
		t.Error("there is data")
	}
	if left, _ := filepath.Glob(filepath.Join(l.home.dir, "*")); !slices.Equal(left, []string{l.home.password()}) {
		t.Errorf("left in the home: %q", left)
	}
}
