package archtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"turnkeeper/internal/archtest"
	"turnkeeper/internal/testrun"
)

// TestAnotherModuleImportsTurnkeeper imports this module in another one with a replace directive, using the commands of
// README.md.
func TestAnotherModuleImportsTurnkeeper(t *testing.T) {
	testrun.OnlyFull(t)
	t.Parallel()
	dir := t.TempDir()
	source := `package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"` + archtest.Module + `"
	"` + archtest.Module + `/client"
)

func order(ctx context.Context, tx pgx.Tx) (turnkeeper.MessageID, error) {
	return client.Enqueue(ctx, tx, turnkeeper.Submission{Agent: "helper", Body: "Order 17 came in.", Key: "order-17"})
}

func main() { _ = order }
`
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, "go", "mod", "init", "example.org/shop")
	run(t, dir, "go", "mod", "edit", "-require", archtest.Module+"@v0.0.0", "-replace", archtest.Module+"="+here)
	run(t, dir, "go", "mod", "tidy")
	run(t, dir, "go", "build", "-o", os.DevNull, ".")
}

// TestAnotherModulePath checks that after scripts/set-module-path the public packages compile and the package order
// holds.
func TestAnotherModulePath(t *testing.T) {
	testrun.OnlyFull(t)
	t.Parallel()
	dir := t.TempDir()
	// Copy instead of cloning, as this tree may have changes or belong to another user.
	run(t, root, "sh", "-c",
		`tar -c --exclude=./.git --exclude=./bin --exclude=./.turnkeeper --exclude=node_modules . | tar -x -C "$0"`,
		dir)
	run(t, dir, "git", "init", "--quiet")
	run(t, dir, "git", "add", "--all")
	run(t, dir, "scripts/set-module-path", "example.org/you/turnkeeper")
	run(t, dir, "go", "build", ".", "./client")
	run(t, dir, "go", "vet", "./client", "./internal/archtest")
	run(t, dir, "go", "test", "-run", "TestModule|TestCheck", "./internal/archtest")
}

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}
