package words_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/words"
)

// TestDurationsAtTheirLimits prints durations just below, at and just above each change of unit.
func TestDurationsAtTheirLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d             time.Duration
		coarse, exact string
	}{
		{0, "0 s", "0 ms"},
		{1999 * time.Microsecond, "0 s", "1 ms"},
		{time.Second - 1, "0 s", "999 ms"},
		{time.Second, "1 s", "1.00 s"},
		{9990 * time.Millisecond, "9 s", "9.99 s"},
		{10 * time.Second, "10 s", "10.0 s"},
		{59900 * time.Millisecond, "59 s", "59.9 s"},
		{time.Minute, "1 min", "1m0s"},
		{time.Minute + 500*time.Millisecond, "1 min", "1m1s"},
		{time.Hour - 1, "59 min", "1h0m0s"},
		{time.Hour, "1 h", "1h0m0s"},
		{48*time.Hour - 1, "47 h", "48h0m0s"},
		{48 * time.Hour, "2 days", "48h0m0s"},
	} {
		if coarse, exact := words.Coarse(c.d), words.Exact(c.d); coarse != c.coarse || exact != c.exact {
			t.Errorf("%s: %q, %q", c.d, coarse, exact)
		}
	}
}

func TestAgo(t *testing.T) {
	t.Parallel()
	c := words.Clock{Now: golden.Now, Zone: time.FixedZone("", 3600)}
	for _, row := range []struct {
		from             time.Duration
		ago, at, exactly string
	}{
		{-time.Second, "1 s ago", "10:39:59 (1 s ago)", "2026-03-04 10:39:59 +01:00 (1 s ago)"},
		{-time.Second + 1, "now", "10:39:59 (now)", "2026-03-04 10:39:59 +01:00 (now)"},
		{time.Second - 1, "now", "10:40:00 (now)", "2026-03-04 10:40:00 +01:00 (now)"},
		{time.Second, "in 1 s", "10:40:01 (in 1 s)", "2026-03-04 10:40:01 +01:00 (in 1 s)"},
		// The day is that of the zone: there it is already the fourth.
		{-10*time.Hour - 40*time.Minute, "10 h ago", "00:00:00 (10 h ago)", "2026-03-04 00:00:00 +01:00 (10 h ago)"},
		{-10*time.Hour - 41*time.Minute, "10 h ago", "2026-03-03 23:59 (10 h ago)",
			"2026-03-03 23:59:00 +01:00 (10 h ago)"},
		{14 * time.Hour, "in 14 h", "2026-03-05 00:40 (in 14 h)", "2026-03-05 00:40:00 +01:00 (in 14 h)"},
	} {
		at := golden.Now.Add(row.from)
		if got := c.Ago(at); got != row.ago {
			t.Errorf("%s: %q", row.from, got)
		}
		if got := c.At(at); got != row.at {
			t.Errorf("%s: at %q", row.from, got)
		}
		if got := c.Exactly(at); got != row.exactly {
			t.Errorf("%s: exactly %q", row.from, got)
		}
	}
	if c.At(time.Time{}) != "-" || c.Ago(time.Time{}) != "-" {
		t.Errorf("no time is %q, %q", c.At(time.Time{}), c.Ago(time.Time{}))
	}
}

// TestObeyed checks each character that a terminal obeys, and its neighbours.
func TestObeyed(t *testing.T) {
	t.Parallel()
	obeyed := map[rune]bool{}
	for _, span := range [][2]rune{
		{0, 8}, {0xb, 0x1f}, {0x7f, 0x9f}, {0x61c, 0x61c}, {0x200e, 0x200f}, {0x2028, 0x2029}, {0x202a, 0x202e},
		{0x2066, 0x2069},
	} {
		for r := span[0]; r <= span[1]; r++ {
			obeyed[r] = true
		}
	}
	for r := rune(0); r < 0x2100; r++ {
		if words.Obeyed(r) != obeyed[r] {
			t.Errorf("%U is obeyed: %v", r, words.Obeyed(r))
		}
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\r\n\t": "\\r\n\t", "\x1b": `\x1b`, "\x7f": `\x7f`, "\u0080": `\u0080`, "\u009b": `\u009b`,
		"\u2028": `\u2028`, "a\xffb": "a\ufffdb",
		"\u2028\r\x00": `\u2028\r\x00`,
	} {
		if got := words.Plain(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		" a \n\t b ": "a b", "12345": "12345", "123456": "1234…", "日本語日本": "日本語日本", "日本語日本語": "日本語日…", "a\x00": `a\x00`,
	} {
		if got := words.Brief(text, 5); got != want {
			t.Errorf("brief %q: %q, want %q", text, got, want)
		}
	}
}

func TestNumbersAndLists(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0 rows": words.Plural(0, "row"), "1 row": words.Plural(1, "row"), "1,000 rows": words.Plural(1000, "row"),
		"-1 rows": words.Plural(-1, "row"),
		"-999":    words.Thousands(-999), "-1,000": words.Thousands(-1000), "999,999": words.Thousands(999999),
		"1,000,000": words.Thousands(1000000),
		"":          words.Enumerate(nil), "a": words.Enumerate([]string{"a"}),
		"a and b":    words.Enumerate([]string{"a", "b"}),
		"a, b and c": words.Enumerate([]string{"a", "b", "c"}), "main": words.Conversation("", "main"),
		"main of anna": words.Conversation("anna", "main"),
		"a b c":        words.State("a_b_c"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestWordsForStates compares the sign of each state, the text of each stop reason and the advice on each code with
// testdata.
func TestWordsForStates(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, state := range []string{
		"waiting", "queued", "running", "succeeded", "degraded", "failed", "cancelled", "planned", "started",
		"denied", "skipped", "unknown", "",
	} {
		fmt.Fprintf(&b, "%s %s\n", words.Sign(state), state)
	}
	for _, reason := range constants(t, "StopReason") {
		for _, losses := range []int{0, 1, 2} {
			said := words.StopReason(turnkeeper.Turn{StopReason: turnkeeper.StopReason(reason), Losses: losses})
			if losses == 0 || reason == string(turnkeeper.StopWorkerLost) {
				fmt.Fprintf(&b, "%s, %d losses: %s\n", reason, losses, said)
			}
			if said == reason && reason != "" {
				t.Errorf("there is no text for %s", reason)
			}
		}
	}
	codes := map[string]bool{"": true, "99999": true}
	source, err := os.ReadFile("database.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range regexp.MustCompile(`(?m)^\t"(\w+)":`).FindAllStringSubmatch(string(source), -1) {
		codes[code[1]] = true
	}
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		fmt.Fprintf(&b, "%s: %s\n  to write: %s\n", code, words.DatabaseAdvice(code, "nothing else"),
			words.WriteAdvice(code))
	}
	golden.File(t, "testdata/words.txt", b.String())
}

// constants returns the values of the constants of a type of package turnkeeper.
func constants(t *testing.T, of string) (values []string) {
	t.Helper()
	files, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\t\w+\s+(?:` + of + `\s+)= "(\w+)"`)
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		source, err := os.ReadFile("../../" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range declared.FindAllStringSubmatch(string(source), -1) {
			values = append(values, found[1])
		}
	}
	if len(values) < 5 {
		t.Fatalf("only %q are found", values)
	}
	return values
}

// TestSilenceAndRefusals checks the sentences about workers and databases that do not answer.
func TestSilenceAndRefusals(t *testing.T) {
	t.Parallel()
	moment := func(at time.Time) string { return at.Format(time.TimeOnly) }
	silent := turnkeeper.Silence{For: 90 * time.Second, Until: golden.Now}
	stopped := silent
	stopped.Stopped = true
	refused := turnkeeper.UnderWay{
		Round: 2, OutputTokens: 7, Calls: []turnkeeper.OpenCall{{Name: "a"}}, RefusedFor: 3 * time.Minute,
		RefusedTimes: 4, RefusedCode: "53100",
	}
	four := turnkeeper.UnderWay{Calls: []turnkeeper.OpenCall{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}}
	three := turnkeeper.UnderWay{Calls: four.Calls[:3], OutputTokens: 7}
	for _, c := range []struct{ got, want string }{
		{words.Silence("host-1", silent, "its turn", moment),
			"worker host-1 has been silent for 1 min; its turn is taken over at 09:40:00"},
		{words.Silence("host. ", stopped, "turn 7", moment),
			"worker host has stopped; turn 7 is taken over at 09:40:00"},
		{words.Silence("", silent, "it", moment), "its worker has been silent for 1 min; it is taken over at 09:40:00"},
		{words.SilentFor(silent), "worker silent for 1 min"}, {words.SilentFor(stopped), "worker stopped"},
		{words.Refusing(90*time.Second, 1, "53100"), "it has refused to write for 1 min (53100, 1 attempt)"},
		{words.Refused(90*time.Second, "53100"), "the database refused to write for 1 min (53100)"},
		{words.Refused(90*time.Second, ""), "the database was unavailable for 1 min"},
		{words.UnderWay(refused), "waits for the database: it has refused to write for 3 min (53100, 4 attempts)"},
		{words.UnderWay(three), "runs a, b, c"}, {words.UnderWay(four), "runs a, b, c, 1 more"},
		{words.UnderWay(turnkeeper.UnderWay{Calls: []turnkeeper.OpenCall{{Name: strings.Repeat("x", 41)}}}),
			"runs " + strings.Repeat("x", 39) + "…"},
		{words.Doing(turnkeeper.Turn{}), ""}, {words.Doing(turnkeeper.Turn{UnderWay: &three}), "runs a, b, c"},
		{words.Doing(turnkeeper.Turn{UnderWay: &three, Silence: &silent}), "worker silent for 1 min"},
		{words.Clause("a. b. "), "a. b"}, {words.Clause("a..."), "a..."}, {words.Sentence("a…"), "a…"},
		{words.Sentence("a.. ."), "a."},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// TestWhatRetentionDeleted names each class of rows that are gone, with the newest time of outputs.
func TestWhatRetentionDeleted(t *testing.T) {
	t.Parallel()
	moment := func(at time.Time) string { return at.Format(time.TimeOnly) }
	at := func(minutes int) time.Time { return golden.Now.Add(time.Duration(minutes) * time.Minute) }
	outputs := []turnkeeper.Output{{ID: "a", ExpiredAt: at(1)}, {ID: "b", ExpiredAt: at(3)}, {ID: "c",
		ExpiredAt: at(2)}, {ID: "d"}}
	if got := words.Expired(turnkeeper.Turn{}, outputs[3:], moment); got != nil {
		t.Errorf("nothing was deleted, and it says %q", got)
	}
	got := words.Expired(turnkeeper.Turn{EventsExpiredAt: at(4), LeasesExpiredAt: at(5)}, outputs, moment)
	want := []string{
		"outputs: their content was deleted by retention at 09:43:00",
		"events: all but the last were deleted by retention at 09:44:00",
		"leases: the log of ended dispatches was deleted by retention at 09:45:00",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	const gone = "expired: the content of output b was deleted by retention at 09:43:00"
	if got := words.ExpiredOutput(outputs[1], moment); got != gone {
		t.Errorf("%q", got)
	}
}
