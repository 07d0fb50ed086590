package jobs_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/riverqueue/river/rivertype"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/internal/golden"
)

// fates are what became of the cases of a test, for a file in testdata.
type fates struct {
	mu  sync.Mutex
	all map[string]string
}

// recordFates compares the fates with a file once all cases have ended. A run of some cases compares these.
func recordFates(t *testing.T, file string) *fates {
	f := &fates{all: map[string]string{}}
	t.Cleanup(func() {
		path := "testdata/" + file
		known, _ := os.ReadFile(path)
		var text strings.Builder
		for _, name := range slices.Sorted(maps.Keys(f.all)) {
			section := name + ":\n" + f.all[name] + "\n"
			if text.WriteString(section); !golden.Updating() && !strings.Contains(string(known), section) {
				t.Errorf("%s does not have:\n%s", path, section)
			}
		}
		if golden.Updating() || strings.Count(string(known), "\n\n") <= len(f.all) {
			golden.File(t, path, text.String())
		}
	})
	return f
}

// add adds what became of a case: how its job ended for River, if one has, what the worker logged, and what is stored.
func (f *fates) add(name string, s *site, ended string, logs *observer.ObservedLogs) {
	s.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	if ended != "" {
		fmt.Fprintf(&b, "    the job %s\n", ended)
	}
	for _, line := range logs.All() {
		fields := line.ContextMap()
		for _, unsteady := range []string{"trace_id", "waited", "turn_duration_ms", "took"} {
			delete(fields, unsteady)
		}
		fmt.Fprintf(&b, "    logs %s: %s %v\n", line.Level, line.Message, fields)
	}
	for _, row := range one[[]string](s, `select coalesce(array_agg(row order by row), '{}') from (
		select concat_ws(', ', 'turn ' || state, 'class ' || error_class, 'error ' || error, 'reason ' || stop_reason,
			'due in ' || round(extract(epoch from due_at - now()) / 60)::int || ' min', losses || ' losses') from turnkeeper.turns
		union all select concat_ws(', ', 'lane of turn ' || turn_id, failures || ' failures',
			'not before ' || round(extract(epoch from not_before - now()))::int / 10 * 10 || ' s') from turnkeeper.leases
		union all select 'grant ended ' || coalesce(outcome, 'not yet') from turnkeeper.lease_log
		union all select format('job %s in %s %s', kind, queue, state) from turnkeeper.river_job
		union all select concat_ws(', ', 'call attempt ' || attempt, losses || ' losses', 'ended ' || (ended_at is not null),
			'claimed ' || (claim is not null)) from turnkeeper.detached_calls
		union all select format('reply %s: %s', outcome, body) from turnkeeper.replies) rows (row)`) {
		fmt.Fprintf(&b, "    %s\n", row)
	}
	f.all[name] = about80s.ReplaceAllString(b.String(), "about 80s")
}

// about80s is how long a turn has waited after wait80s.
var about80s = regexp.MustCompile(`1m[2-5]\ds`)

// endOfJob says what an error of a job means to River.
func endOfJob(err error) string {
	if snoozed, ok := errors.AsType[*rivertype.JobSnoozeError](err); ok {
		return fmt.Sprintf("is snoozed for %s", snoozed.Duration)
	}
	if _, ok := errors.AsType[*rivertype.JobCancelError](err); ok {
		return "is cancelled: " + err.Error()
	}
	if err != nil {
		return "fails: " + err.Error()
	}
	return "is completed"
}
