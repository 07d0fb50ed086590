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

// clients is a folder with the clients of tests/internal/clients installed, as their lock says;
// removeBinaries takes it away.
var clients = sync.OnceValues(func() (string, error) {
	if out, err := exec.Command(Path("scripts/need"), "node:nodejs", "npm:npm").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	dir, err := os.MkdirTemp("", "turnkeeper-clients-")
	if err != nil {
		return "", err
	}
	clientsDir = dir
	if err := os.CopyFS(dir, os.DirFS(Path("tests/internal/clients"))); err != nil {
		return "", err
	}
	install := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return dir, nil
})

var clientsDir string // empty: none was made

// NodeProgram is a program of tests/internal/clients, not yet started.
func NodeProgram(ctx context.Context, t testing.TB, environ []string, script string, args ...string) *exec.Cmd {
	t.Helper()
	dir, err := clients()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "node", append([]string{filepath.Join(dir, script)}, args...)...)
	cmd.Dir, cmd.Env = dir, append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, environ...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
