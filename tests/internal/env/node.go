package env

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// clients installs the npm packages of tests/internal/clients, and returns that folder.
var clients = sync.OnceValues(func() (string, error) {
	dir := Path("tests/internal/clients")
	for _, args := range [][]string{{"scripts/need", "node:nodejs", "npm:npm"}, {"scripts/npm-ci", dir}} {
		cmd := exec.Command(Path(args[0]), args[1:]...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", args[0], err, out)
		}
	}
	return dir, nil
})

// NodeProgram returns a command that runs a script of tests/internal/clients.
func NodeProgram(ctx context.Context, t testing.TB, environ []string, script string, args ...string) *exec.Cmd {
	t.Helper()
	dir, err := clients()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "node", append([]string{filepath.Join(dir, script)}, args...)...)
	cmd.Dir, cmd.Env = dir, append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir()}, environ...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
