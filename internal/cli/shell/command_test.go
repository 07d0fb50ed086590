package shell

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCommandBeside(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", "enqueue"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(dir, "bin", "worker")
	for name, c := range map[string]struct{ from, program, want string }{
		"below":     {dir, "enqueue", "bin/enqueue"},
		"here":      {filepath.Join(dir, "bin"), "enqueue", "./enqueue"},
		"far away":  {"/", "enqueue", filepath.Join(dir, "bin", "enqueue")[1:]},
		"not there": {dir, "turnctl", "turnctl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(c.from)
			if got := commandBeside(self, c.program); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
