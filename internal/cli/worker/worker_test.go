package worker

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/app"
	"turnkeeper/internal/bench"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/golden"
	"turnkeeper/policy"
	"turnkeeper/storage/operate"
)

// session returns a session whose screen is a buffer.
func session(out *bytes.Buffer) *shell.Session {
	return &shell.Session{Out: &term.Screen{W: out, Columns: 200, Colour: true}}
}

// coloured returns a text with visible escape characters.
func coloured(out *bytes.Buffer) string { return strings.ReplaceAll(out.String(), "\x1b", "^") }

// TestReports compares reports of the benchmark with testdata: one of which no field, and one of which each field,
// is empty, and figures
// of several sections, systems and numbers of lanes.
func TestReports(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := session(&out)
	printBench(s, bench.Report{Flush: 999 * time.Microsecond})
	out.WriteString("\n== filled\n")
	printBench(s, golden.With(100, func(r *bench.Report) {
		r.Flush, r.Targets[1].Met, r.Targets[1].Least = time.Millisecond, false, false
	}))
	out.WriteString("\n== sections\n")
	figure := func(section, system string, lanes int, cpu map[string]float64) bench.Figure {
		return bench.Figure{Section: section, System: system, Lanes: lanes, Turns: 7, TurnsPerS: float64(lanes) + 0.5,
			CPU: cpu}
	}
	printBench(s, bench.Report{Figures: []bench.Figure{
		figure(bench.SectionLanes, bench.Turnkeeper, 1, map[string]float64{"worker": 1, "river": 2, "total": 3,
			"postgres": 4, "sender": 5, "model": 6}),
		figure(bench.SectionLanes, bench.River, 1, map[string]float64{"river": 7}), figure(bench.SectionLanes,
			bench.Floor, 10, map[string]float64{"floor": 8}),
		figure(bench.SectionLanes, bench.EndFloor, 10, map[string]float64{"floor": 9}),
		figure(bench.SectionIdle, bench.Turnkeeper, 10, nil),
	}})
	out.WriteString("\n== comparison\n")
	printComparison(s, []bench.Ratio{golden.Filled[bench.Ratio](100), {}})
	golden.File(t, "testdata/reports.txt", coloured(&out))
}

// TestLimitsOfABenchmark checks each number of turns and lanes just within and beyond its limits.
func TestLimitsOfABenchmark(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*bench.Options)
		want   string // empty: accepted
	}{
		"none": {func(o *bench.Options) {
			o.Idle, o.Turns, o.Watched, o.History, o.WarmUp, o.Retention = 0, 0, 0, 0, 0, 0
		}, ""},
		"idle": {func(o *bench.Options) { o.Idle = -1 },
			"--idle is -1: it must not be negative; 0 means none"},
		"turns": {func(o *bench.Options) { o.Turns = -1 },
			"--turns is -1: it must not be negative; 0 means none"},
		"watched": {func(o *bench.Options) { o.Watched = -1 },
			"--watched is -1: it must not be negative; 0 means none"},
		"history": {func(o *bench.Options) { o.History = -1 },
			"--history is -1: it must not be negative; 0 means none"},
		"warm-up": {func(o *bench.Options) { o.WarmUp = -1 },
			"--warm-up is -1: it must not be negative; 0 means none"},
		"retention": {func(o *bench.Options) { o.Retention = -1 },
			"--retention is -1: it must not be negative; 0 means none"},
		"workers":      {func(o *bench.Options) { o.Workers = []int{1, 100} }, ""},
		"no workers":   {func(o *bench.Options) { o.Workers = []int{1, 0} }, "--workers has 0: it must be 1 to 100"},
		"many workers": {func(o *bench.Options) { o.Workers = []int{101} }, "--workers has 101: it must be 1 to 100"},
		"lanes":        {func(o *bench.Options) { o.Lanes = []int{1, 10_000} }, ""},
		"no lanes":     {func(o *bench.Options) { o.Lanes = []int{1, 0} }, "--lanes has 0: it must be 1 to 10000"},
		"too many lane": {func(o *bench.Options) { o.Lanes = []int{10_001} },
			"--lanes has 10001: it must be 1 to 10000"},
	} {
		o := bench.Default()
		c.change(&o)
		if err := checkBench(o); err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPeriods reads the periods that policy test takes.
func TestPeriods(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"1d": 24 * time.Hour, "7d": 168 * time.Hour, "36500d": 36500 * 24 * time.Hour, "12h": 12 * time.Hour,
		"90":     90 * time.Second,
		"36501d": 0, "0d": 0, "-1d": 0, "0": 0, "-1s": 0, "": 0, "d": 0, "soon": 0,
	} {
		got, err := periodOf(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}

// TestWhichRuleIsTested checks that a rule goes before a file, and a file before the setting.
func TestWhichRuleIsTested(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rule")
	if err := os.WriteFile(file, []byte("\n of a file \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ rule, file, setting, want string }{
		{"given", file, "set", "given"}, {"", file, "set", "of a file"}, {"", "", "set", "set"}, {"", "", "", ""},
		{"", file + "none", "set", ""},
	} {
		got, err := ruleOf(c.rule, c.file, c.setting)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

// TestDecisions counts decisions of each verdict and compares the list with testdata.
func TestDecisions(t *testing.T) {
	t.Parallel()
	view := policyView{}
	for i, verdict := range []policy.Verdict{policy.Allow, policy.Ask, policy.Ask, policy.Deny, policy.Deny,
		policy.Deny, ""} {
		call := golden.Filled[operate.JournaledCall](100 * (i + 1))
		view.add(call, policy.Decision{Verdict: verdict, Reason: strings.Repeat("why ", i*5)})
	}
	var out bytes.Buffer
	showDecisions(session(&out).Out, view)
	showDecisions(session(&out).Out, policyView{})
	if err := shell.WriteJSON(&out, view.Calls[0]); err != nil {
		t.Fatal(err)
	}
	golden.File(t, "testdata/decisions.txt", coloured(&out))
}

// TestWhatAWorkerSays compares what a worker says once it is ready with testdata, for each kind of worker.
func TestWhatAWorkerSays(t *testing.T) {
	t.Parallel()
	ready := golden.Filled[app.Ready](100)
	ready.Roles = []string{"scheduler", "worker"}
	bare := app.Ready{WorkerID: turnkeeper.WorkerID("host-1"), Roles: []string{"api"}, API: "http://localhost"}
	all := &config.Config{DataDir: "data", AgentsDir: "agents", Roles: []string{config.RoleWorker}}
	var b strings.Builder
	say := func(name string, cfg *config.Config, r app.Ready) {
		fmt.Fprintf(&b, "== %s\n%s\n", name, strings.Join(readiness(cfg, r), "\n"))
	}
	say("all", all, ready)
	say("no agents", all, bare)
	ready.Private, ready.API = false, ""
	say("no API, another database", all, ready)
	say("no turns", &config.Config{Roles: []string{config.RoleScheduler}}, ready)
	var out bytes.Buffer
	showFindings(session(&out), []app.ProbeFinding{golden.Filled[app.ProbeFinding](100), {Verdict: "ok", Name: "a",
		Found: "b"}})
	showFindings(session(&out), nil)
	golden.File(t, "testdata/ready.txt", b.String()+"== probe\n"+coloured(&out))
}
