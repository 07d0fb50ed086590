package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// No test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatIsGeneratedIsUpToDate(t *testing.T) {
	t.Parallel()
	for name, text := range generated() {
		stored, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(stored), string(text)); diff != "" {
			t.Errorf("%s is out of date: run go generate ./httpapi\n%s", name, diff)
		}
	}
}

// An entry that no type uses any more would stay in the tables of docs.go unnoticed.
func TestEachEntryOfTheTablesIsUsed(t *testing.T) {
	t.Parallel()
	described := string(description())
	used := func(table, component string) {
		if !strings.Contains(described, "\n   \""+component+"\": {") {
			t.Errorf("%s: no type is the component %s", table, component)
		}
	}
	for name := range enums {
		if !strings.Contains(described, `"`+enums[name].doc+`"`) {
			used("enums", name)
		}
	}
	for _, name := range names {
		used("names", name)
	}
	for name := range docs {
		used("docs", name)
	}
	for field := range fieldSchemas {
		name, _, _ := strings.Cut(field, ".")
		used("fieldSchemas", name)
	}
}
