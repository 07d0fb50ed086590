package jsonlimit_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"turnkeeper/internal/jsonlimit"
)

// TestTheDocumentShowsAllReaders checks docs/limits.md.
func TestTheDocumentShowsAllReaders(t *testing.T) {
	text, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, r := range jsonlimit.Readers() {
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %s | %s |",
			r.Data, size(r.Bytes), count(r.Depth), count(r.Values), size(r.Memory), r.Rest))
	}
	if table := strings.Join(rows, "\n"); !strings.Contains(string(text), table) {
		t.Errorf("docs/limits.md lacks this table:\n%s", table)
	}
}

func size(n int64) string {
	switch {
	case n == 0:
		return ""
	case n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

func count(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
