package cli_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"turnkeeper/internal/pgdev"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// newPlainEnv returns an Env with one agent of the demo model, and no database.
func newPlainEnv(t testing.TB) *env.Env {
	t.Helper()
	e := &env.Env{T: t, Dir: env.SharedDir(t), Vars: map[string]string{"PATH": os.Getenv("PATH"), "NO_COLOR": "1",
		"TMPDIR": os.TempDir()}}
	e.Vars["HOME"] = e.Dir
	if err := os.Mkdir(filepath.Join(e.Dir, "agents"), 0o755); err != nil {
		t.Fatal(err)
	}
	e.WriteAgent("helper", "tools: [clock]")
	return e
}

func TestAFirstRunWithoutADatabase(t *testing.T) {
	t.Parallel()
	e := newPlainEnv(t)
	data := filepath.Join(e.Dir, ".turnkeeper")

	if r := e.Run("", "enqueue", "--agent", "helper", "Hello"); r.Code == 0 || !strings.Contains(r.Stderr,
		"there is no database yet") {
		t.Errorf("enqueue before the first run ended with %d: %s", r.Code, r.Stderr)
	}
	w := env.StartProcess(t, "worker", e.Dir, e.Environ(), env.Binary(t, "worker"))
	w.Await("worker ready")
	r := e.Run("", "enqueue", "--agent", "helper", "--wait", "--json", "What time is it?")
	var answer struct{ Outcome, Reply string }
	if err := json.Unmarshal([]byte(r.Stdout), &answer); err != nil || r.Code != 0 || answer.Outcome != "succeeded" ||
		answer.Reply == "" {
		t.Fatalf("enqueue --wait ended with %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := e.Run("", "turnctl", "doctor"); r.Code != 0 || !strings.Contains(r.Stdout, "no problems found") {
		t.Errorf("turnctl doctor ended with %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	server := env.PostmasterPID(t, data)
	if server == 0 || !env.ProcessAlive(server) {
		t.Fatal("there is no private Postgres")
	}
	if code := w.Terminate(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	if env.ProcessAlive(server) || env.PostmasterPID(t, data) != 0 {
		t.Error("the private Postgres outlived its worker")
	}

	// A restart keeps everything.
	w = env.StartProcess(t, "worker again", e.Dir, e.Environ(), env.Binary(t, "worker"))
	w.Await("worker ready")
	replies := env.Turnctl[[]struct{ Body string }](e, "outbox")
	if len(replies) != 1 || replies[0].Body != answer.Reply {
		t.Errorf("after the restart the outbox is %+v", replies)
	}
	if r := e.Run("", "enqueue", "--agent", "helper", "--wait", "And now?"); r.Code != 0 {
		t.Errorf("after the restart enqueue ended with %d: %s", r.Code, r.Stderr)
	}
	server = env.PostmasterPID(t, data)
	w.Terminate()
	if env.ProcessAlive(server) {
		t.Error("the private Postgres outlived its second worker")
	}
	checkPrivateDatabase(e, data)
}

func TestAKilledWorkersPrivateDatabaseIsTakenUp(t *testing.T) {
	t.Parallel()
	testrun.Slow(t)
	e := newPlainEnv(t)
	data := filepath.Join(e.Dir, ".turnkeeper")
	w := env.StartProcess(t, "worker", e.Dir, e.Environ(), env.Binary(t, "worker"))
	w.Await("worker ready")
	if r := e.Run("", "enqueue", "--agent", "helper", "--wait", "One?"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	w.Kill()
	w = env.StartProcess(t, "worker again", e.Dir, e.Environ(), env.Binary(t, "worker"))
	w.Await("worker ready")
	if r := e.Run("", "enqueue", "--agent", "helper", "--wait", "Two?"); r.Code != 0 {
		t.Errorf("enqueue ended with %d: %s", r.Code, r.Stderr)
	}
	server := env.PostmasterPID(t, data)
	w.Terminate()
	if server == 0 || env.ProcessAlive(server) {
		t.Errorf("the private Postgres %d outlived its worker", server)
	}
	checkPrivateDatabase(e, data)
}

// checkPrivateDatabase checks the invariants of a private database that no process uses.
func checkPrivateDatabase(e *env.Env, data string) {
	e.T.Helper()
	server, err := pgdev.Open(e.T.Context(), pgdev.Options{Dir: data})
	if err != nil {
		e.T.Fatal(err)
	}
	defer func() {
		e.DB.Close()
		if err := server.Close(e.T.Context()); err != nil {
			e.T.Error(err)
		}
	}()
	e.DatabaseURL = server.URL()
	e.DB = env.OpenPool(e.T, e.DatabaseURL)
	e.CheckInvariants()
}

// TestTheDemoScript runs the script of "make demo" on a copy of the files it needs.
func TestTheDemoScript(t *testing.T) {
	t.Parallel()
	dir := env.SharedDir(t)
	for _, name := range []string{"agents", "scripts"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(env.Path(name))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(env.BinaryDir(t), filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "scripts", "demo.sh"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the demo failed: %v\n%s", err, out)
	}
	for _, want := range []string{"clock", "list_files", "succeeded", "script"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the demo does not show %q:\n%s", want, out)
		}
	}
	if pid := env.PostmasterPID(t, filepath.Join(dir, ".turnkeeper")); pid != 0 && env.ProcessAlive(pid) {
		t.Errorf("the demo left Postgres %d running", pid)
	}
}

// A worker whose private Postgres is killed restarts it and continues.
func TestAPrivateDatabaseThatDies(t *testing.T) {
	t.Parallel()
	testrun.Slow(t)
	e := newPlainEnv(t)
	data := filepath.Join(e.Dir, ".turnkeeper")
	w := env.StartProcess(t, "worker", e.Dir, e.Environ(), env.Binary(t, "worker"))
	w.Await("worker ready")
	first := env.PostmasterPID(t, data)
	if first == 0 {
		t.Fatal("there is no private Postgres")
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.Await("restarted the private Postgres") // before any other program used it

	r := e.Run("", "enqueue", "--agent", "helper", "--wait", "--json", "What time is it?")
	var answer struct{ Outcome string }
	if err := json.Unmarshal([]byte(r.Stdout), &answer); err != nil || r.Code != 0 || answer.Outcome != "succeeded" {
		t.Fatalf("enqueue --wait ended with %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	second := env.PostmasterPID(t, data)
	if second == first || !env.ProcessAlive(second) {
		t.Errorf("the server is process %d, and was %d", second, first)
	}
	if code := w.Terminate(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	if env.ProcessAlive(second) {
		t.Error("the private Postgres outlived its worker")
	}
}
