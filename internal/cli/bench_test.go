package cli_test

import (
	"strings"
	"testing"

	"turnkeeper/internal/cli/worker"
)

func TestBenchRefusesSizes(t *testing.T) {
	for flags, want := range map[string]string{
		"--sizes=turns=1":         `the series "turns": there are backing-off, conversation, finished, lanes`,
		"--sizes=finished=10:5":   "finished=10:5: sizes are whole numbers in growing order",
		"--sizes=finished=x":      "finished=x: sizes are whole numbers",
		"--sizes=lanes=0:10":      "lanes=0:10: sizes are whole numbers",
		"--workers=1,0":           "--workers has 0: it must be 1 to 100",
		"--retention=-1":          "--retention is -1: it must not be negative",
		"--flat --lanes=1,100000": "--lanes has 100000: it must be 1 to 10000",
	} {
		got := run(t, worker.Program(), nil, "", append([]string{"bench"}, strings.Fields(flags)...)...)
		if got.code != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: exit code %d, want %q:\n%s", flags, got.code, want, got.stderr)
		}
	}
}
