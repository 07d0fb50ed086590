package turnkeeper_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/golden"
)

var turnStates = []turnkeeper.TurnState{
	turnkeeper.TurnQueued, turnkeeper.TurnRunning, turnkeeper.TurnWaiting, turnkeeper.TurnSucceeded,
	turnkeeper.TurnDegraded, turnkeeper.TurnFailed,
	turnkeeper.TurnCancelled, "unheard-of",
}

var callStates = []turnkeeper.CallState{
	turnkeeper.CallPlanned, turnkeeper.CallStarted, turnkeeper.CallRunning, turnkeeper.CallSucceeded,
	turnkeeper.CallFailed, turnkeeper.CallSkipped,
	turnkeeper.CallDenied, turnkeeper.CallUnknown, turnkeeper.CallCancelled, "unheard-of",
}

// TestEveryState records each state, the moves from it, and what is said of a call in it.
func TestEveryState(t *testing.T) {
	t.Parallel()
	var written strings.Builder
	for _, from := range turnStates {
		fmt.Fprintf(&written, "turn %s: terminal %t\n", from, from.Terminal())
		for _, to := range turnStates {
			if err := from.MoveTo(to); err == nil {
				fmt.Fprintf(&written, "  may become %s\n", to)
			} else if !errors.Is(err, turnkeeper.ErrBadMove) || errors.Is(err, turnkeeper.ErrWrongState) {
				t.Errorf("%s to %s: %v", from, to, err)
			} else {
				fmt.Fprintf(&written, "  %v\n", err)
			}
		}
	}
	for _, from := range callStates {
		fmt.Fprintf(&written, "call %s: answered %t, executed %t\n", from, from.Answered(), from.Executed())
		for _, to := range callStates {
			if err := from.MoveTo(to); err == nil {
				fmt.Fprintf(&written, "  may become %s\n", to)
			} else if !errors.Is(err, turnkeeper.ErrBadMove) {
				t.Errorf("%s to %s: %v", from, to, err)
			} else if to == turnkeeper.CallDenied {
				fmt.Fprintf(&written, "  %v\n", err)
			}
		}
		for _, effect := range []turnkeeper.Effect{turnkeeper.EffectNone, turnkeeper.EffectKeyed,
			turnkeeper.EffectOnce, ""} {
			for _, starts := range []int{0, 1} {
				call := turnkeeper.ToolCall{State: from, Effect: effect, Starts: starts}
				if starts > 0 {
					call.Nonce = "x"
				}
				fmt.Fprintf(&written,
					"  of effect %q, started %d times: in doubt %t, problem %q, may have acted %t, with a lost worker %t; repeatable %t\n",
					effect, starts, call.InDoubt(), call.Problem(), turnkeeper.Turn{}.MayHaveActed(call),
					turnkeeper.Turn{Losses: 1}.MayHaveActed(call), effect.Repeatable())
			}
		}
	}
	for _, shown := range []string{"", "denied: ", "denied: no time\nmore", "no time", `denied: {"error": 1}`, "\nx",
		strings.Repeat("ü", 200), strings.Repeat("ü", 201)} {
		problem := turnkeeper.ToolCall{State: turnkeeper.CallDenied, Shown: shown}.Problem()
		fmt.Fprintf(&written, "denied with %.30q: %.30q (%d characters)\n", shown, problem, len([]rune(problem)))
	}
	for _, preview := range []string{"", "tool error: 'x' timed out after 1.5 s\nmore", "tool error: 'x' broke",
		"said: tool error: 'x' timed out after 1 s"} {
		fmt.Fprintf(&written, "failed with %q: %q\n", preview, turnkeeper.ToolCall{State: turnkeeper.CallFailed,
			Preview: preview}.Problem())
	}
	for _, event := range []turnkeeper.EventType{
		turnkeeper.EventTurnStart, turnkeeper.EventRoundStop, turnkeeper.EventAskClosed, turnkeeper.EventTurnWaiting,
		turnkeeper.EventTurnComplete, turnkeeper.EventTurnError,
	} {
		fmt.Fprintf(&written, "event %s: terminal %t\n", event, event.Terminal())
	}
	golden.File(t, filepath.Join("testdata", "states.txt"), written.String())
}

// TestEveryLimitOfASubmission records what a message is refused for, each limit and a byte more, and when it is due.
func TestEveryLimitOfASubmission(t *testing.T) {
	t.Parallel()
	var written strings.Builder
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		title string
		limit int
		edit  func(*turnkeeper.Submission)
	}{
		{"as it should be", 0, func(*turnkeeper.Submission) {}},
		{"no body", 0, func(s *turnkeeper.Submission) { s.Body = " \n" }},
		{"the longest body", 0, func(s *turnkeeper.Submission) { s.Body = long(64 << 10) }},
		{"a longer one", 0, func(s *turnkeeper.Submission) { s.Body = long(64<<10 + 1) }},
		{"the longest of the setting", 5, func(s *turnkeeper.Submission) { s.Body = long(5) }},
		{"longer than the setting", 5, func(s *turnkeeper.Submission) { s.Body = long(6) }},
		{"a setting below nothing", -1, func(s *turnkeeper.Submission) { s.Body = long(6) }},
		{"a body with NUL", 0, func(s *turnkeeper.Submission) { s.Body = "ab\x00" }},
		{"a body that is no text", 0, func(s *turnkeeper.Submission) { s.Body = "\xff" }},
		{"no agent", 0, func(s *turnkeeper.Submission) { s.Agent = "" }},
		{"the longest agent", 0, func(s *turnkeeper.Submission) { s.Agent = long(63) }},
		{"a longer one", 0, func(s *turnkeeper.Submission) { s.Agent = long(64) }},
		{"no agent's name", 0, func(s *turnkeeper.Submission) { s.Agent = "-a" }},
		{"the longest user", 0, func(s *turnkeeper.Submission) { s.User = long(200) }},
		{"a longer one", 0, func(s *turnkeeper.Submission) { s.User = long(201) }},
		{"a user on two lines", 0, func(s *turnkeeper.Submission) { s.User = "a\nb" }},
		{"a user with NUL", 0, func(s *turnkeeper.Submission) { s.User = "\x00" }},
		{"a user who is no text", 0, func(s *turnkeeper.Submission) { s.User = "\xff" }},
		{"the longest conversation", 0, func(s *turnkeeper.Submission) { s.Conversation = long(200) }},
		{"a longer one", 0, func(s *turnkeeper.Submission) { s.Conversation = long(201) }},
		{"a conversation that is no text", 0, func(s *turnkeeper.Submission) { s.Conversation = "\xff" }},
		{"the longest key", 0, func(s *turnkeeper.Submission) { s.Key = long(200) }},
		{"a longer one", 0, func(s *turnkeeper.Submission) { s.Key = long(201) }},
		{"a key that is no text", 0, func(s *turnkeeper.Submission) { s.Key = "a\xff" }},
		{"the lowest priority", 0, func(s *turnkeeper.Submission) { s.Priority = -1000 }},
		{"a lower one", 0, func(s *turnkeeper.Submission) { s.Priority = -1001 }},
		{"the highest priority", 0, func(s *turnkeeper.Submission) { s.Priority = 1000 }},
		{"a higher one", 0, func(s *turnkeeper.Submission) { s.Priority = 1001 }},
	} {
		s := turnkeeper.Submission{Agent: "clerk", Body: "Hi."}
		c.edit(&s)
		err := s.Check(c.limit)
		fmt.Fprintf(&written, "%s: %.150v (empty %t, invalid %t)\n", c.title, err,
			errors.Is(err, turnkeeper.ErrEmptyMessage), errors.Is(err, turnkeeper.ErrInvalidMessage))
	}
	now := time.Date(2026, 3, 2, 9, 0, 0, 500_000_000, time.UTC)
	for _, due := range []time.Time{{}, now.Add(-time.Hour), now, now.Add(time.Microsecond),
		now.Add(500 * time.Millisecond), now.Add(501 * time.Millisecond), now.Add(3660 * 24 * time.Hour),
		now.Add(3660*24*time.Hour + 1)} {
		at, err := turnkeeper.Submission{DueAt: due}.DueFrom(now)
		fmt.Fprintf(&written, "due at %s: %s, %v\n", due.Format(time.RFC3339Nano), at.Format(time.RFC3339Nano), err)
	}
	golden.File(t, filepath.Join("testdata", "submissions.txt"), written.String())
}

// TestKeysAndSums checks the names that are made of others, the order of keys, and the sums.
func TestKeysAndSums(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	window := turnkeeper.Window{Size: 10_000, Answer: 2000, Safety: 300, System: 1, Tools: 20, History: 300, Turn: 4000,
		Notice: 50_000, Factor: 1.5}
	odd := window
	odd.System = 2
	odd.Factor = 0.5
	usage := turnkeeper.Usage{InputTokens: 1, OutputTokens: 20, CachedTokens: 300, CacheWriteTokens: 50_000,
		ReasoningTokens: 4000}
	more := turnkeeper.Usage{InputTokens: 2, OutputTokens: 30, CachedTokens: 400, CacheWriteTokens: 60_000,
		ReasoningTokens: 5000, Estimated: true}
	message := turnkeeper.Message{Agent: "a", User: "u", Conversation: "c", DueAt: at, Priority: 90, SentBy: "turn:7"}
	key := turnkeeper.CallKey{Round: 2, Ordinal: 3}
	for _, c := range [][2]any{
		{turnkeeper.ConversationKey{Agent: "a", Name: "c"}.Lane(), turnkeeper.Lane("a/c")},
		{turnkeeper.ConversationKey{Agent: "a", User: "u/%2F", Name: "c/d"}.Lane(), turnkeeper.Lane("a@u%2F%252F/c/d")},
		{turnkeeper.Lane("a@u/c").Agent() + turnkeeper.Lane("b/c@d").Agent(), "ab"},
		{turnkeeper.Lane("c").Agent() + turnkeeper.Lane("d#7").Agent(), "cd"},
		{turnkeeper.Submission{Agent: "a", User: "u"}.ConversationKey(), turnkeeper.ConversationKey{Agent: "a",
			User: "u", Name: "main"}},
		{turnkeeper.Submission{Agent: "b", Conversation: "c"}.ConversationKey(),
			turnkeeper.ConversationKey{Agent: "b", Name: "c"}},
		{message.ConversationKey(), turnkeeper.ConversationKey{Agent: "a", User: "u", Name: "c"}},
		{turnkeeper.Turn{Agent: "t", User: "u", Conversation: "c"}.ConversationKey(),
			turnkeeper.ConversationKey{Agent: "t", User: "u", Name: "c"}},
		{message.Rank(), at.Add(-90 * time.Second)},
		{key.String(), "round-2-tool-3"},
		{window.Estimate(), 54_321},
		{window.Corrected(), 81_482},
		{odd.Corrected(), 27_161},
		{window.Room(), 7700},
		{usage.Add(more), turnkeeper.Usage{InputTokens: 3, OutputTokens: 50, CachedTokens: 700,
			CacheWriteTokens: 110_000, ReasoningTokens: 9000, Estimated: true}},
		{more.Add(usage), turnkeeper.Usage{InputTokens: 3, OutputTokens: 50, CachedTokens: 700,
			CacheWriteTokens: 110_000, ReasoningTokens: 9000, Estimated: true}},
		{usage.Add(usage), turnkeeper.Usage{InputTokens: 2, OutputTokens: 40, CachedTokens: 600,
			CacheWriteTokens: 100_000, ReasoningTokens: 8000}},
		{usage.Total(), int64(21)},
		{turnkeeper.ReplyID(7).WebhookID(), "reply_7"},
		{turnkeeper.Turn{CreatedAt: at, EndedAt: at.Add(7)}.Duration(), time.Duration(7)},
		{turnkeeper.Schedule{Cron: "a"}.InForce(), "a"},
		{turnkeeper.Schedule{Cron: "a", CronOverride: "b"}.InForce(), "b"},
		{turnkeeper.ToolCall{Arguments: "{}"}.AsRun(), "{}"},
		{turnkeeper.ToolCall{Arguments: "{}", RunArgs: "{1}"}.AsRun(), "{1}"},
	} {
		if c[0] != c[1] {
			t.Errorf("got %v, want %v", c[0], c[1])
		}
	}
	if !message.ToSubAgent() || (turnkeeper.Message{SentBy: "token:7"}).ToSubAgent() {
		t.Error("a message of a turn, and only that, is to a sub-agent")
	}
	if (turnkeeper.Turn{CreatedAt: at}).Duration() != 0 ||
		(turnkeeper.Turn{CreatedAt: at, EndedAt: at.Add(-1)}).Duration() != 0 {
		t.Error("an open turn, or one whose clock was set back, has a duration")
	}
	for _, other := range []turnkeeper.CallKey{{1, 9}, {2, 2}, {2, 4}, {3, 1}} {
		later := other.Round > key.Round || other.Round == key.Round && other.Ordinal > key.Ordinal
		if (key.Compare(other) < 0) != later || (other.Compare(key) > 0) != later {
			t.Errorf("%v compared with %v: %d", key, other, key.Compare(other))
		}
	}
	if same := key; key.Compare(same) != 0 {
		t.Error("a key is not equal to itself")
	}
}
