package config_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"turnkeeper/internal/config"
)

// TestBulkyConfigFiles checks that a file that is too large is not read whole, and that one with as many
// values as possible takes little memory.
func TestBulkyConfigFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "turnkeeper.yaml")
	for name, c := range map[string]struct {
		text string
		size int64 // 0: that of the text
		says string
	}{
		"large":   {"listen: x\n", 200 << 20, "the settings are larger than 64 KiB"},
		"arrays":  {"roles: [" + strings.Repeat("[],", 21_000) + "]\n", 0, "roles"},
		"aliases": {"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", 0, "aliases"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c.size > 0 {
			if err := os.Truncate(file, c.size); err != nil {
				t.Fatal(err)
			}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := config.Load(config.LoadOptions{File: file})
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %.300v", name, err)
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 100<<20 {
			t.Errorf("%s: %d MiB were allocated", name, allocated>>20)
		} else {
			t.Logf("%s: %d MiB", name, allocated>>20)
		}
	}
}
