package tests_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"turnkeeper/internal/pgdev"
)

// sharedFolder is a temporary folder that every user may pass through, for a
// Postgres that runs as another user.
func sharedFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "turnkeeper-tests-")
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

// newPlainHouse is a folder with one agent of the demo model, and no database.
func newPlainHouse(t testing.TB) *house {
	t.Helper()
	h := &house{t: t, dir: sharedFolder(t), env: map[string]string{"PATH": os.Getenv("PATH"), "NO_COLOR": "1", "TMPDIR": os.TempDir()}}
	h.env["HOME"] = h.dir
	if err := os.Mkdir(filepath.Join(h.dir, "agents"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.agent("helper", "tools: [clock]")
	return h
}

// postmaster is the process id of the private Postgres of a folder; 0: none.
func postmaster(t testing.TB, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// alive tells a process that runs from one that is gone, or has ended and is
// only waited for: that one has no command line any more.
func alive(pid int) bool {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err == nil {
		return len(args) > 0
	}
	if _, noProc := os.Stat("/proc/self"); noProc == nil {
		return false
	}
	return syscall.Kill(pid, 0) == nil
}

func TestAFirstRunWithoutADatabase(t *testing.T) {
	t.Parallel()
	h := newPlainHouse(t)
	data := filepath.Join(h.dir, ".turnkeeper")

	if r := h.run("", "enqueue", "--agent", "helper", "Hello"); r.code == 0 || !strings.Contains(r.stderr, "there is no database yet") {
		t.Errorf("enqueue before the first run ended with %d: %s", r.code, r.stderr)
	}
	w := startProcess(t, "worker", h.dir, h.environment(), binary(t, "worker"))
	w.await("worker ready")
	r := h.run("", "enqueue", "--agent", "helper", "--wait", "--json", "What time is it?")
	var answer struct{ Outcome, Reply string }
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || r.code != 0 || answer.Outcome != "succeeded" || answer.Reply == "" {
		t.Fatalf("enqueue --wait ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r := h.run("", "turnctl", "doctor"); r.code != 0 || !strings.Contains(r.stdout, "all is well") {
		t.Errorf("turnctl doctor ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	server := postmaster(t, data)
	if server == 0 || !alive(server) {
		t.Fatal("there is no private Postgres")
	}
	if code := w.terminate(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	if alive(server) || postmaster(t, data) != 0 {
		t.Error("the private Postgres outlived its worker")
	}

	// A restart has kept everything.
	w = startProcess(t, "worker again", h.dir, h.environment(), binary(t, "worker"))
	w.await("worker ready")
	replies := turnctl[[]struct{ Body string }](h, "outbox")
	if len(replies) != 1 || replies[0].Body != answer.Reply {
		t.Errorf("after the restart the outbox is %+v", replies)
	}
	if r := h.run("", "enqueue", "--agent", "helper", "--wait", "And now?"); r.code != 0 {
		t.Errorf("after the restart enqueue ended with %d: %s", r.code, r.stderr)
	}
	server = postmaster(t, data)
	w.terminate()
	if alive(server) {
		t.Error("the private Postgres outlived its second worker")
	}
	h.checkPrivate(data)
}

func TestAKilledWorkersPrivateDatabaseIsTakenUp(t *testing.T) {
	t.Parallel()
	h := newPlainHouse(t)
	data := filepath.Join(h.dir, ".turnkeeper")
	flags := []string{"--takeover-after", silence}
	w := startProcess(t, "worker", h.dir, h.environment(), binary(t, "worker"), flags...)
	w.await("worker ready")
	if r := h.run("", "enqueue", "--agent", "helper", "--wait", "One?"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	w.kill()
	w = startProcess(t, "worker again", h.dir, h.environment(), binary(t, "worker"), flags...)
	w.await("worker ready")
	if r := h.run("", "enqueue", "--agent", "helper", "--wait", "Two?"); r.code != 0 {
		t.Errorf("enqueue ended with %d: %s", r.code, r.stderr)
	}
	server := postmaster(t, data)
	w.terminate()
	if server == 0 || alive(server) {
		t.Errorf("the private Postgres %d outlived its worker", server)
	}
	h.checkPrivate(data)
}

// checkPrivate checks the invariants in a private database that nobody uses.
func (h *house) checkPrivate(data string) {
	h.t.Helper()
	server, err := pgdev.Open(h.t.Context(), pgdev.Options{Dir: data})
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() {
		h.db.Close()
		if err := server.Close(h.t.Context()); err != nil {
			h.t.Error(err)
		}
	}()
	h.url = server.URL()
	h.db = open(h.t, h.url)
	h.checkInvariants()
}

// TestTheDemoScript runs what "make demo" runs, on a copy of what it needs.
func TestTheDemoScript(t *testing.T) {
	t.Parallel()
	dir := sharedFolder(t)
	for _, name := range []string{"agents", "scripts"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join("..", name))); err != nil {
			t.Fatal(err)
		}
	}
	binary(t, "worker")
	if err := os.Symlink(binaryDir, filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "scripts", "demo.sh"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir()}
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the demo failed: %v\n%s", err, out)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the demo took %s", took)
	}
	for _, want := range []string{"clock", "list_files", "succeeded", "script"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the demo does not show %q:\n%s", want, out)
		}
	}
	if pid := postmaster(t, filepath.Join(dir, ".turnkeeper")); pid != 0 && alive(pid) {
		t.Errorf("the demo leaves Postgres %d running", pid)
	}
}

// TestAPrivateDatabaseThatDies shows that a worker whose private Postgres is killed
// starts it again, by itself, and goes on.
func TestAPrivateDatabaseThatDies(t *testing.T) {
	t.Parallel()
	h := newPlainHouse(t)
	data := filepath.Join(h.dir, ".turnkeeper")
	w := startProcess(t, "worker", h.dir, h.environment(), binary(t, "worker"))
	w.await("worker ready")
	first := postmaster(t, data)
	if first == 0 {
		t.Fatal("there is no private Postgres")
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.await("the private Postgres runs again") // nobody else has looked at it

	r := h.run("", "enqueue", "--agent", "helper", "--wait", "--json", "What time is it?")
	var answer struct{ Outcome string }
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || r.code != 0 || answer.Outcome != "succeeded" {
		t.Fatalf("enqueue --wait ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	second := postmaster(t, data)
	if second == first || !alive(second) {
		t.Errorf("the server is process %d, and was %d", second, first)
	}
	if code := w.terminate(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	if alive(second) {
		t.Error("the private Postgres outlived its worker")
	}
}
