package storesuite_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"turnkeeper/agentturn"
	"turnkeeper/agentturn/extract"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/internal/storesuite"
	"turnkeeper/scheduler"
)

// uncompared are methods of stores that no operation of a pair calls, with the reason.
var uncompared = map[string]string{
	"Store.Schedule":     "slots are times of the day, and the clocks of the stores differ by what has passed",
	"Store.Present":      "needs a connection of a worker for the length of a program",
	"Store.FindMessage":  "Message reads the same",
	"Journal.NewMessage": "dispatch.spawnOf calls it",
}

// TestOperationsUseTheWholeStore fails if a method of what the scheduler and turns need of a store is used by no
// operation of a pair. What the scheduler calls in a tick counts.
func TestOperationsUseTheWholeStore(t *testing.T) {
	operations, ticks := sourceOf(t, "pair*.go"), sourceOf(t, "../../scheduler/*.go")
	for _, i := range []struct {
		of     reflect.Type
		source string
	}{
		{reflect.TypeFor[storesuite.Store](), operations}, {reflect.TypeFor[storesuite.Keeper](), operations},
		{reflect.TypeFor[agentturn.Journal](), operations}, {reflect.TypeFor[agentturn.Budget](), operations},
		{reflect.TypeFor[agentturn.Freshness](), operations}, {reflect.TypeFor[extract.Cache](), operations},
		{reflect.TypeFor[toolrun.Outputs](), operations}, {reflect.TypeFor[toolrun.Drafts](), operations},
		{reflect.TypeFor[scheduler.Store](), operations + ticks}, {reflect.TypeFor[scheduler.Tick](),
			operations + ticks},
	} {
		for method := range i.of.Methods() {
			name := i.of.Name() + "." + method.Name
			used := regexp.MustCompile(`\.` + method.Name + `\b`).MatchString(i.source)
			if _, excepted := uncompared[name]; used == excepted {
				t.Errorf("%s: used by an operation: %t, listed as unused: %t", name, used, excepted)
			}
		}
	}
}

// sourceOf returns the code of the package's files, without tests.
func sourceOf(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	var all strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
