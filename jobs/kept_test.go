package jobs

import (
	"fmt"
	"testing"

	"turnkeeper/agentdef"
)

// TestKeptDefinitions parses one definition less than a worker keeps, as many, and one more, with which it begins
// again. A definition that is kept is not parsed again.
func TestKeptDefinitions(t *testing.T) {
	w := &Worker{definitions: map[string]*agentdef.Definition{}}
	for n := 1; n <= 1001; n++ {
		hash := fmt.Sprint("hash-", n)
		first, err := w.parsed("clerk", hash, []byte("---\ndescription: d\nmodel: script/m\n---\nYou are the clerk.\n"))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := w.parsed("clerk", hash, []byte("is not read")); again != first || err != nil {
			t.Fatalf("definition %d is parsed again, %v", n, err)
		}
		want := n
		if n == 1001 {
			want = 1
		}
		if len(w.definitions) != want {
			t.Fatalf("after %d definitions, %d are kept", n, len(w.definitions))
		}
	}
	if _, err := w.parsed("clerk", "other", []byte("---\nunheard_of: 1\n---\nYou are it.\n")); err == nil ||
		len(w.definitions) != 1 {
		t.Errorf("a definition that cannot be read: %v; %d are kept", err, len(w.definitions))
	}
}
