package diagnosis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper/asks"
	"turnkeeper/internal/limittest"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

var clock = words.Clock{Now: time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC), Zone: time.UTC}

// wellServer are the facts of a server with nothing to report.
func wellServer() storage.ServerFacts {
	return storage.ServerFacts{Version: "16.3", FSync: "on", SynchronousCommit: "on", FullPageWrites: "on",
		Encoding: "UTF8", MaxConnections: 100}
}

// serverCheck returns the finding of a name about a server whose clock is off.
func serverCheck(t *testing.T, name string, f storage.ServerFacts, off time.Duration) Check {
	t.Helper()
	d := &Report{}
	examineServer(d, Settings{}, f, off)
	i := slices.IndexFunc(d.Checks, func(c Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check %s", name)
	}
	return d.Checks[i]
}

// TestLimits tries each limit of the checks.
func TestLimits(t *testing.T) {
	limittest.Check(t, map[string]limittest.Row{
		"oldestServer": {At: 14, Least: true, Takes: func(t *testing.T, major int) bool {
			f := wellServer()
			f.Version = fmt.Sprint(major, ".2")
			return serverCheck(t, "database", f, 0).Verdict == OK
		}},
		"clocksApart": {At: 2000, Takes: func(t *testing.T, ms int) bool {
			ahead := serverCheck(t, "clock", wellServer(), time.Duration(ms)*time.Millisecond)
			behind := serverCheck(t, "clock", wellServer(), -time.Duration(ms)*time.Millisecond)
			if ahead.Verdict != behind.Verdict {
				t.Errorf("%d ms ahead is %s, behind is %s", ms, ahead.Verdict, behind.Verdict)
			}
			return ahead.Verdict == OK
		}},
		"extraConnections": {At: 3*(7+4) + 10, Least: true, Takes: func(_ *testing.T, allowed int) bool {
			d, f := &Report{}, wellServer()
			f.MaxConnections = allowed
			examineConnections(d, Settings{DBPoolSize: 7}, f, 3)
			return d.Checks[0].Verdict == OK
		}},
		"longWait": {At: 5*60 - 1, Takes: func(t *testing.T, seconds int) bool {
			d := askReport(t, time.Duration(seconds)*time.Second, 48*time.Hour)
			return d.Checks[0].Verdict == OK
		}},
		"lossesShown": {At: 24 * 3600, Least: true, Takes: func(t *testing.T, seconds int) bool {
			return len(askReport(t, 0, time.Duration(seconds)*time.Second).Checks) == 1
		}},
		"grownBytes":     {Test: "TestWhenRetentionIsProposed"},
		"grownFor":       {Test: "TestWhenRetentionIsProposed"},
		"newestMessages": {None: "the store reads so many: there is nothing to see of it here"},
		"previewed": {At: 120, Takes: func(_ *testing.T, n int) bool {
			return strings.HasSuffix(PinText(clock, &operate.Pin{Reason: strings.Repeat("x", n-1) + "!"}), "!")
		}},
	})
}

// An askStore has one ask that has expired.
type askStore struct {
	Store
	closed time.Time
}

func (s askStore) ListAsks(context.Context, operate.AskFilter) ([]operate.Ask, error) {
	return []operate.Ask{{Ask: asks.Ask{ID: 7, ClosedAt: s.closed}, Agent: "clerk"}}, nil
}

// askReport judges turns that have waited for a person for so long, and an ask that expired so long ago.
func askReport(t *testing.T, waited, closed time.Duration) *Report {
	t.Helper()
	d := &Report{}
	queue := operate.Totals{Waits: []waiting.Tally{{Reason: waiting.Person, Turns: 1, Since: clock.Now.Add(-waited)}}}
	examineAsks(t.Context(), d, askStore{closed: clock.Now.Add(-closed)}, queue, clock)
	return d
}

// TestServers checks what is said of each setting of a server, and of its clock.
func TestServers(t *testing.T) {
	for name, change := range map[string]func(*storage.ServerFacts){
		"fsync": func(f *storage.ServerFacts) {
			f.FSync = "off"
		}, "synchronous_commit": func(f *storage.ServerFacts) { f.SynchronousCommit = "off" },
		"full_page_writes": func(f *storage.ServerFacts) {
			f.FullPageWrites = "off"
		}, "encoding": func(f *storage.ServerFacts) { f.Encoding = "LATIN1" },
	} {
		bad := wellServer()
		change(&bad)
		d := &Report{}
		examineServer(d, Settings{}, bad, 0)
		for _, c := range d.Checks {
			if (c.Verdict == OK) != (c.Name != name) || (c.Advice == "") != (c.Verdict == OK) {
				t.Errorf("with another %s: %+v", name, c)
			}
		}
	}
	for off, want := range map[time.Duration]string{
		99 * time.Millisecond:  "the same as that of this process",
		-99 * time.Millisecond: "the same as that of this process",
		100 * time.Millisecond: "ahead of that of this process", -100 * time.Millisecond: "behind that of this process",
		3 * time.Second: "3.00 s ahead of that of this process", -time.Hour: "1h0m0s behind that of this process",
	} {
		if got := serverCheck(t, "clock", wellServer(), off).Found; !strings.HasSuffix(got, want) {
			t.Errorf("%s off: %s, want %s", off, got, want)
		}
	}
}
