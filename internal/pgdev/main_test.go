package pgdev_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper/internal/pgdev"
	"turnkeeper/internal/testrun"
)

// guestVariable names the variable that makes the test binary open the given folder as a guest.
const guestVariable = "PGDEV_TEST_GUEST"

func TestMain(m *testing.M) {
	if dir := os.Getenv(guestVariable); dir != "" {
		if err := runGuest(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testrun.Main(m)
}

// runGuest opens a server, prints its URL, and closes it at the end of stdin.
func runGuest(dir string) error {
	server, err := pgdev.Open(context.Background(), pgdev.Options{Dir: dir})
	if err != nil {
		return err
	}
	fmt.Println(server.URL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return server.Close(context.Background())
}

// A guest is another process that uses a server.
type guest struct {
	url  string
	cmd  *exec.Cmd
	stop io.Closer
}

func startGuest(t *testing.T, dir string) *guest {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), guestVariable+"="+dir)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the guest said no address: %v", err)
	}
	return &guest{url: strings.TrimSpace(url), cmd: cmd, stop: stdin}
}

// leave makes the guest close the server and exit.
func (g *guest) leave(t *testing.T) {
	t.Helper()
	if err := g.stop.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Wait(); err != nil {
		t.Fatalf("the guest ended with %v", err)
	}
}

// kill kills the guest, which cannot close the server.
func (g *guest) kill(t *testing.T) {
	t.Helper()
	if err := g.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = g.cmd.Wait()
}

// openFolder creates a folder that every user can enter, unlike t.TempDir.
func openFolder(t *testing.T) string {
	testrun.Slow(t)
	t.Helper()
	dir, err := os.MkdirTemp("", "pgdev-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// usedFolder returns a folder in which a server ran before. It is a copy, as creating a cluster takes most of a second
// of CPU time.
func usedFolder(t *testing.T) string {
	dir := openFolder(t)
	from, err := cluster()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", from+"/.", dir).CombinedOutput(); err != nil {
		t.Fatalf("copying a cluster: %v\n%s", err, out)
	}
	return dir
}

var cluster = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "pgdev-cluster-")
	if err != nil {
		return "", err
	}
	server, err := pgdev.Open(context.Background(), pgdev.Options{Dir: dir, Quick: true})
	if err != nil {
		return "", err
	}
	return dir, server.Close(context.Background())
})

func open(t *testing.T, opts pgdev.Options) *pgdev.Server {
	t.Helper()
	server, err := pgdev.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	return server
}

func closeServer(t *testing.T, server *pgdev.Server) {
	t.Helper()
	if err := server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// ask runs one statement and returns its one value as text.
func ask(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var text string
	rows, err := conn.Query(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return text
}

// pid returns the process id of the server of a folder.
func pid(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	id, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// alive reports whether a process is running. A zombie, which its parent has not waited for, has a process id but no
// command line.
func alive(pid int) bool {
	if _, err := os.Stat("/proc/self"); err != nil {
		return syscall.Kill(pid, 0) == nil
	}
	args, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && len(args) > 0
}

// eventually polls until the condition is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticks := time.NewTicker(10 * time.Millisecond)
	defer ticks.Stop()
	deadline := time.After(time.Minute)
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("never came true: %s", what)
		case <-ticks.C:
		}
	}
}
