package strictyaml_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"turnkeeper/internal/config/strictyaml"
)

// editsBetween counts the edits from one word to another by trying them all: insert, delete, replace, and swap two
// neighbours, of which none is edited again.
func editsBetween(a, b string, most int) int {
	switch {
	case a == b:
		return 0
	case most == 0:
		return 1
	case a != "" && b != "" && a[0] == b[0]:
		return editsBetween(a[1:], b[1:], most)
	}
	least := most + 1
	try := func(a, b string) { least = min(least, 1+editsBetween(a, b, most-1)) }
	if a != "" {
		try(a[1:], b)
	}
	if b != "" {
		try(a, b[1:])
	}
	if a != "" && b != "" {
		try(a[1:], b[1:])
	}
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		try(a[2:], b[2:])
	}
	return least
}

// TestTheNearestWord compares it with the first of the words that need the fewest edits. A word may have one wrong
// letter, and another for each three letters, but no more than three.
func TestTheNearestWord(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	word := func(n int) string {
		var text strings.Builder
		for range n {
			text.WriteByte("abc"[random.IntN(3)])
		}
		return text.String()
	}
	found := 0
	for range 3000 {
		asked := word(random.IntN(14))
		known := []string{word(random.IntN(14)), word(len(asked)), word(len(asked) + 1)}
		near := []byte(asked) // a word that is near in most cases
		for range random.IntN(4) {
			if at := random.IntN(len(near) + 1); at < len(near) {
				near[at] = "abc"[random.IntN(3)]
			} else {
				near = append(near, 'c')
			}
		}
		known = append(known, string(near), word(len(asked)))
		want, fewest := "", max(1, min(3, len(asked)/3))+1
		for _, candidate := range known {
			if n := editsBetween(asked, candidate, fewest); n < fewest {
				want, fewest = candidate, n
			}
		}
		if got := strictyaml.Nearest(strings.ToUpper(asked), known); got != want {
			t.Fatalf("near to %q of %q is %q, want %q", asked, known, got, want)
		}
		if want != "" {
			found++
		}
	}
	if found < 1000 || found > 2900 {
		t.Errorf("%d words have a near one: the cases say little", found)
	}
	long := strings.Repeat("x", 64)
	if strictyaml.Nearest(long, []string{long}) != long || strictyaml.Nearest(long+"x", []string{long}) != "" {
		t.Error("only words of up to 64 bytes are compared")
	}
}
