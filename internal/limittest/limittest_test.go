package limittest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRead checks which constants need a row.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"p.go": `package p

import "time"

const most = 64 << 10

const (
	name          = "n"
	pause, second = time.Second, 2 * pause
	again         = pause
	share         = 0.5
	on            = true
)

var changes = 5

func f() { const local = 7 }
`,
		"p_test.go": "package p\n\nconst tries = 9\n\nfunc TestOne(t *testing.T) {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	numbers, tests := read(t, dir)
	if diff := cmp.Diff([]string{"most", "pause", "second", "share"}, slices.Sorted(maps.Keys(numbers))); diff != "" {
		t.Errorf("constants (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"TestOne": true}, tests); diff != "" {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
}
