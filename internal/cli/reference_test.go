package cli_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/internal/cli/turnctl"
)

func TestReferenceIsWhatStandsInTheDocs(t *testing.T) {
	file, err := os.ReadFile("../../docs/turnctl.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(file), turnctl.Reference()); diff != "" {
		t.Errorf("run make generate (-docs/turnctl.md +commands):\n%s", diff)
	}
}

// TestEveryCommandHasAnExample checks that the help of every runnable command has an example.
func TestEveryCommandHasAnExample(t *testing.T) {
	sections := regexp.MustCompile(`(?m)^## `).Split(turnctl.Reference(), -1)
	if len(sections) < 25 {
		t.Errorf("there are %d sections", len(sections))
	}
	for _, section := range sections[2:] {
		if name, _, _ := strings.Cut(section, "\n"); !strings.Contains(section, "\nExamples:\n") {
			t.Errorf("%s has no example", name)
		}
	}
}

// TestCompletion checks the completion of commands, states and formats.
func TestCompletion(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"completion", "bash"}, "__start_turnctl"},
		{[]string{"__complete", "exp"}, "explain\t"},
		{[]string{"__complete", "turns", "--state", "deg"}, "degraded\n"},
		{[]string{"__complete", "turns", "-o", ""}, "json\n"},
	} {
		got := run(t, turnctl.Program(), nowhere(t), "", c.args...)
		if got.code != 0 || !strings.Contains(got.stdout, c.want) {
			t.Errorf("turnctl %v: exit code %d, %.300q %s", c.args, got.code, got.stdout, got.stderr)
		}
	}
}
