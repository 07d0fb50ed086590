package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// No test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheDescriptionIsGenerated(t *testing.T) {
	t.Parallel()
	stored, err := os.ReadFile("../openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(stored), string(description())); diff != "" {
		t.Errorf("openapi.json is not what the routes say: run go generate ./httpapi\n%s", diff)
	}
}
