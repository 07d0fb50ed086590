package traceparent_test

import (
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/traceparent"
)

const sender = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParseTraceParent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text        string
		ok, sampled bool
	}{
		"sampled":                      {sender, true, true},
		"not sampled":                  {strings.TrimSuffix(sender, "01") + "00", true, false},
		"other flags":                  {strings.TrimSuffix(sender, "01") + "fe", true, false},
		"a later version":              {"01" + sender[2:] + "-more", true, true},
		"nothing":                      {"", false, false},
		"more than version 00 has":     {sender + "-more", false, false},
		"a later version runs on":      {"01" + sender[2:] + "more", false, false},
		"version ff":                   {"ff" + sender[2:], false, false},
		"upper case":                   {strings.ToUpper(sender), false, false},
		"no hexadecimal":               {strings.Replace(sender, "0af7", "0xf7", 1), false, false},
		"no trace":                     {"00-00000000000000000000000000000000-b7ad6b7169203331-01", false, false},
		"no span":                      {"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false, false},
		"too short":                    {sender[:len(sender)-1], false, false},
		"an underscore for a hyphen":   {strings.Replace(sender, "-b7", "_b7", 1), false, false},
		"characters of several bytes":  {"00-" + strings.Repeat("ä", 16) + "-b7ad6b7169203331-01", false, false},
		"spaces around, which is none": {" " + sender, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := traceparent.Parse(c.text)
			if ok != c.ok || got.Sampled != c.sampled {
				t.Fatalf("%q: %+v, %v", c.text, got, ok)
			}
			if ok && (got.String() != "0af7651916cd43dd8448eb211c80319c" || got.Sender[0] != 0xb7) {
				t.Errorf("%q: %+v", c.text, got)
			}
			if !ok && got != (traceparent.Context{}) {
				t.Errorf("%q is none, and gives %+v", c.text, got)
			}
		})
	}
}

// A turn is in the same trace for whoever asks, and in one of its own where its
// message brought none.
func TestATurnsTrace(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 2, 3, 4, 5, 6, 789000, time.UTC)
	turn := turnkeeper.Turn{ID: 7, CreatedAt: made}
	if got := traceparent.Of(turn, sender); got.String() != "0af7651916cd43dd8448eb211c80319c" || !got.HasSender() ||
		!got.Sampled {
		t.Errorf("got %+v", got)
	}
	own := traceparent.Of(turn, "")
	if own.HasSender() || own != traceparent.Of(turn, "nonsense") || own != traceparent.Of(turnkeeper.Turn{ID: 7,
		CreatedAt: made.In(time.FixedZone("", 3600))}, "") {
		t.Errorf("got %+v", own)
	}
	others := []traceparent.Context{
		own, traceparent.Of(turnkeeper.Turn{ID: 8, CreatedAt: made}, ""),
		traceparent.Of(turnkeeper.Turn{ID: 7, CreatedAt: made.Add(time.Microsecond)}, ""),
	}
	seen := map[any]bool{}
	for _, c := range others {
		seen[c.TraceID] = true
		seen[c.SpanOf(traceparent.TurnSpan(7))] = true
		seen[c.SpanOf(traceparent.GrantSpan("7"))] = true
	}
	if len(seen) != 3*len(others) {
		t.Errorf("%d ids are different of %d", len(seen), 3*len(others))
	}
}

// What hangs below a span is in its trace, and sampled as it is told.
func TestBelowASpan(t *testing.T) {
	t.Parallel()
	turn := turnkeeper.Turn{ID: 7, CreatedAt: time.Date(2026, 2, 3, 4, 5, 6, 789000, time.UTC)}
	for _, from := range []string{"", sender} {
		for _, sampled := range []bool{true, false} {
			above := traceparent.Of(turn, from)
			span := above.SpanOf(traceparent.CallSpan(7, turnkeeper.CallKey{Round: 1, Ordinal: 2}))
			below := traceparent.Of(turnkeeper.Turn{ID: 8}, above.Below(span, sampled))
			if below.TraceID != above.TraceID || below.Sender != span || below.Sampled != sampled {
				t.Errorf("below %+v is %+v", above, below)
			}
		}
	}
}
