package bench_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper/internal/bench"
	"turnkeeper/internal/testrun"
)

// A quick run measures everything. Each commit waits for the flush delay, and a turn of the floor has six
// commits, one after the other.
func TestRun(t *testing.T) {
	testrun.Slow(t)
	t.Parallel()
	const delay = time.Millisecond
	o := bench.Quick()
	o.FlushDelay, o.Turns, o.WarmUp = delay, 20, 2
	r, err := bench.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]int{}
	for _, f := range r.Figures {
		sections[f.Section]++
		checkFigure(t, r, f)
		switch {
		case f.Section == bench.SectionIdle && f.System == bench.Floor && f.Reply.P50 < 6*delay:
			t.Errorf("six commits took %v with flushes slower by %v", f.Reply.P50, delay)
		case f.Section == bench.SectionLanes && f.System == bench.EndFloor && f.Transactions > 3:
			t.Errorf("the message and one commit at the end made %.1f transactions per turn", f.Transactions)
		case f.Section == bench.SectionWatched && f.Reply.P50 < 600*time.Millisecond:
			t.Errorf("%s: three answers that stream for 200 ms took %v", f.Case, f.Reply.P50)
		case strings.HasSuffix(f.Case, "watchers") && f.Events < 20:
			t.Errorf("a watcher got %d events", f.Events)
		}
	}
	for section, want := range map[string]int{
		bench.SectionIdle: 5, bench.SectionLanes: 5, bench.SectionWatched: 2, bench.SectionHistory: 2,
	} {
		if sections[section] != want {
			t.Errorf("the section %q has %d figures, want %d", section, sections[section], want)
		}
	}
	if r.Flush <= 0 || r.FlushDelay != delay || r.Postgres == "" || r.FSync != "on" || r.Took <= 0 {
		t.Errorf("facts are missing: %+v", r)
	}
	targets := 5 // without CPU time
	if r.CPUFrom != "" {
		targets = 9
		if r.Idle == nil || r.Idle.Worker <= 0 {
			t.Errorf("a worker without work: %+v", r.Idle)
		}
	}
	if len(r.Targets) != targets {
		t.Errorf("%d targets are judged, want %d: %+v", len(r.Targets), targets, r.Targets)
	}
	checkComparison(t, r)
}

// Every series that grows in its own way, worker processes, and a purge.
func TestSeries(t *testing.T) {
	testrun.Slow(t)
	t.Parallel()
	const turns = 12
	r, err := bench.Run(t.Context(), bench.Options{
		Turns: turns, WarmUp: 2, Workers: []int{2}, Retention: 200,
		Flat: map[string][]int{"waiting": {0, 50}, "backing-off": {0, 50}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]int{"waiting": {0, 50}, "backing-off": {0, 50}, "workers": {2}}
	for _, s := range r.Series {
		var sizes []int
		for i, step := range s.Steps {
			sizes = append(sizes, step.Size)
			checkStep(t, r, s.Name, i == 0, step)
			if step.Figure.Turns < turns {
				t.Errorf("%s at %d: %d turns", s.Name, step.Size, step.Figure.Turns)
			}
		}
		if !slices.Equal(sizes, want[s.Name]) {
			t.Errorf("%s at %v, want %v", s.Name, sizes, want[s.Name])
		}
	}
	if g := r.Grants; g == nil || g.Grants != turns || g.PerSecond <= 0 || r.CPUFrom != "" && g.Scheduler <= 0 ||
		r.StatementsFrom != "" && g.Blocks <= 0 {
		t.Errorf("grants: %+v", g)
	}
	if p := r.Retention; p == nil || p.Turns == 0 || p.Turns > 200 || p.PerSecond <= 0 || r.StatementsFrom != "" &&
		(p.Longest <= 0 || p.OfMS <= 0 || p.AloneMS <= 0) {
		t.Errorf("retention: %+v", p)
	}
	if len(r.Series) != 3 || len(r.Figures) != 2 {
		t.Errorf("%d series, %d figures", len(r.Series), len(r.Figures))
	}
}

func checkStep(t *testing.T, r bench.Report, series string, first bool, s bench.Step) {
	t.Helper()
	for name, ratio := range map[string]struct {
		measured bool
		of       float64
	}{"turns/s": {true, s.Turns}, "blocks": {r.StatementsFrom != "", s.Blocks}, "CPU": {r.CPUFrom != "", s.CPU}} {
		if ratio.measured && (ratio.of <= 0 || first && ratio.of != 1) {
			t.Errorf("%s at %d: the ratio of %s is %v", series, s.Size, name, ratio.of)
		}
	}
	if s.Figure.Transactions <= 0 || series == "workers" && r.CPUFrom != "" &&
		(s.Figure.CPU["scheduler"] <= 0 || s.Figure.CPU["worker"] <= 0) {
		t.Errorf("%s at %d: %+v", series, s.Size, s.Figure)
	}
}

func checkFigure(t *testing.T, r bench.Report, f bench.Figure) {
	t.Helper()
	values := map[string]float64{
		"turns": float64(f.Turns), "turns/s": f.TurnsPerS, "p50": float64(f.Reply.P50),
		"p99":                float64(f.Reply.P99 - f.Reply.P50 + 1),
		"write transactions": f.Transactions, "WAL": f.WAL,
	}
	if f.System == bench.Turnkeeper {
		values["first request"] = float64(f.FirstRequest.P50)
		values["bytes of requests"], values["repeated bytes"] = f.RequestBytes, f.Repeated
		values["bytes that are not repeated"] = 1 - f.Repeated
		values["reply after the first request"] = float64(f.Reply.P50 - f.FirstRequest.P50)
	}
	if f.Case == "" {
		values["dead tuples"] = f.DeadTuples
	}
	if r.StatementsFrom != "" {
		values["statements"], values["blocks"] = f.Statements, f.Blocks
	}
	if r.CPUFrom != "" {
		values["CPU"], values["CPU of Postgres"] = f.CPU["total"], f.CPU["postgres"]
		values["peak memory"] = float64(f.Peak.Anonymous)
		if f.Case == "" {
			values["resting memory"] = float64(f.Resting.File)
		}
	}
	for name, value := range values {
		if value <= 0 {
			t.Errorf("%s, %s %s: %s is %v", f.Section, f.System, f.Case, name, value)
		}
	}
}

// checkComparison writes a report as JSON, reads it, and compares it with one that is twice as fast.
func checkComparison(t *testing.T, r bench.Report) {
	t.Helper()
	write := func(name string, of any) string {
		path := filepath.Join(t.TempDir(), name)
		text, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	before, err := bench.ReadReport(write("before", r))
	if err != nil {
		t.Fatal(err)
	}
	after, err := bench.ReadReport(write("after", r))
	if err != nil {
		t.Fatal(err)
	}
	for i := range after.Figures {
		after.Figures[i].TurnsPerS *= 2
	}
	ratios := bench.Compare([]bench.Report{before, after, before, after})
	if len(ratios) < 100 {
		t.Errorf("%d values are compared", len(ratios))
	}
	for _, ratio := range ratios {
		want := 1.0
		if strings.HasSuffix(ratio.Name, "turns/s") {
			want = 2
		}
		if ratio.Median != want || ratio.Lowest != want || ratio.Highest != want || ratio.Before <= 0 {
			t.Errorf("%+v, want the ratio %v", ratio, want)
		}
	}
	if _, err := bench.ReadReport(write("older", map[string]any{"cpus": 2})); err == nil ||
		!strings.Contains(err.Error(), "no report of this version") {
		t.Errorf("a report of another version: %v", err)
	}
}

func TestFlushDelayBounds(t *testing.T) {
	for _, delay := range []time.Duration{-time.Millisecond, 101 * time.Millisecond} {
		_, err := bench.Run(t.Context(), bench.Options{FlushDelay: delay})
		if err == nil || !strings.Contains(err.Error(), "0 to 100ms slower") {
			t.Errorf("a delay of %v: %v", delay, err)
		}
	}
}
