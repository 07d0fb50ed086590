package cli_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/cli/enqueue"
	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/internal/turnlog"
)

// onStage returns an empty stage with a worker that has free slots and a scheduler.
func onStage(t *testing.T) (*stage, map[string]string) {
	env, store := somewhere(t)
	s := &stage{DB: store, t: t}
	s.keepAlive("host-1")
	s.beat("host-1")
	s.exec("update turnkeeper.worker_heartbeat set slots = 10, takeover_after = interval '1 hour'")
	s.exec("update turnkeeper.settings set last_tick_at = clock_timestamp()")
	return s, env
}

// asks makes a turn ask a person about its call, and wait.
func (a *act) asks() asks.ID {
	a.s.t.Helper()
	a.round(1, turnkeeper.EffectOnce, "pay")
	a.write(turnlog.Entry{Asks: []asks.Question{{
		Kind: asks.KindApprove, Call: first(1), N: 1, Tool: "pay", Arguments: "{}", Rule: "r", Reason: "y",
		Terms: asks.Terms{Hold: true, Timeout: time.Hour},
	}}})
	a.end("", turnlog.Outcome{State: turnkeeper.TurnWaiting})
	var id asks.ID
	if err := a.s.Pool().QueryRow(a.s.t.Context(), "select id from turnkeeper.asks where turn_id = $1",
		a.grant.TurnID).Scan(&id); err != nil {
		a.s.t.Fatal(err)
	}
	return id
}

func (s *stage) sendIn(conversation, body string) turnkeeper.MessageID {
	s.t.Helper()
	id, err := s.Enqueue(s.t.Context(), turnkeeper.Submission{Agent: "echo", Conversation: conversation, Body: body})
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// TestAnAnsweredTurnBehindARunningOne explains a turn that was parked to ask, and cannot go back to its lane yet.
func TestAnAnsweredTurnBehindARunningOne(t *testing.T) {
	s, env := onStage(t)
	ask := s.turn("Pay.").asks()
	says(t, env, []string{"explain", "--message", "1"},
		"turn 1 waits for a person to answer 1 ask; the first expires at", "turnctl asks --turn 1")
	s.sendIn("other", "Meanwhile.")
	meanwhile := s.next("host-1")
	held := s.sendIn("main", "Later.")
	says(t, env, []string{"explain", "--message", idOf(held)},
		"turn 1, of the same conversation, waits for a person and goes first")
	if _, err := s.AnswerAsk(t.Context(), ask, asks.Answer{Decision: asks.Approved, By: "ann",
		Channel: "test"}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"explain", "--message", "1"}, {"explain", "1"}} {
		got := run(t, turnctl.Program(), env, "", args...)
		if text := strings.ToLower(got.stdout); got.code != 0 || strings.Contains(text, "nothing blocks it") ||
			!strings.Contains(text, "turn 2 of worker host-1 holds lane echo") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	says(t, env, []string{"inbox"}, "running, behind turn 2")
	meanwhile.end(turnkeeper.MessageSucceeded, turnlog.Outcome{State: turnkeeper.TurnSucceeded,
		StopReason: turnkeeper.StopNone, Reply: "Done."})
	says(t, env, []string{"explain", "--message", "1"}, "nothing blocks it")
	behind := s.sendIn("third", "Behind the answered one.")
	says(t, env, []string{"explain", "--message", idOf(behind)}, "turn 1 goes back to lane echo before it")
	if again := s.next("host-1"); again.grant.TurnID != 1 {
		t.Errorf("turn %d was granted, want 1", again.grant.TurnID)
	}
}

// TestAMessageBehindAnOldLane explains a message whose agent's lanes were changed while a turn runs.
func TestAMessageBehindAnOldLane(t *testing.T) {
	s, env := onStage(t)
	s.exec("update turnkeeper.agents set lane_per_conversation = true where name = 'echo'")
	s.sendIn("c1", "Run.")
	s.next("host-1")
	s.exec(
		"update turnkeeper.agents set lane_per_conversation = false, lanes_changed_at = clock_timestamp() where name = 'echo'")
	waits := s.sendIn("c2", "Wait.")
	says(t, env, []string{"explain", "--message", idOf(waits)}, "the agent's lanes were changed at",
		"and turn 1 of worker host-1 is still open in lane echo/c1",
		"turnctl lanes --agent echo")
	// as it was accepted before the change
	s.exec("update turnkeeper.messages set lane = 'echo/c2' where id = $1", waits)
	s.exec("update turnkeeper.turns set lane = 'echo/c2', conversation = 'c9' where id = 1")
	s.exec("update turnkeeper.leases set lane = 'echo/c2'")
	says(t, env, []string{"explain", "--message", idOf(waits)}, "it moves to lane echo at the next tick",
		"turn 1 of worker host-1 holds lane echo/c2")
}

// TestAWaitSaysWhatTheMessageWaitsFor checks that enqueue --wait prints reasons of the table, each once.
func TestAWaitSaysWhatTheMessageWaitsFor(t *testing.T) {
	s, env := onStage(t)
	if err := s.PauseScheduler(t.Context(), "repairs"); err != nil {
		t.Fatal(err)
	}
	got := run(t, enqueue.Program(), env, "", "--agent", "echo", "--wait", "--wait-timeout", "2s", "hi")
	if n := strings.Count(got.stderr, "the message waits: the scheduler has been paused since"); n != 1 ||
		!strings.Contains(got.stderr, ": repairs") {
		t.Errorf("the reason is printed %d times: %+v", n, got)
	}
	if strings.Contains(got.stderr, "next tick") || got.code != 4 {
		t.Errorf("%+v", got)
	}
}

// TestARunningTurnThatIsSetAside explains a turn that was lost and cannot be taken from its worker.
func TestARunningTurnThatIsSetAside(t *testing.T) {
	s, env := onStage(t)
	running := s.turn("Pay.")
	s.exec("select turnkeeper.put_aside('turn', $1::text, '22023', 'its journal cannot be read')",
		strconv.FormatInt(int64(running.grant.TurnID), 10))
	for _, args := range [][]string{{"explain", "--message", "1"}, {"explain", "1"}} {
		says(t, env, args, "t has failed since", "and is set aside until", "its journal cannot be read",
			"Remove what the error names")
	}
	says(t, env, []string{"explain", "--message", idOf(s.sendIn("other", "Behind it."))},
		"turn 1 of worker host-1 holds lane echo")
}

// TestLookAlikesInAnAsk shows arguments with blank and foreign letters.
func TestLookAlikesInAnAsk(t *testing.T) {
	s, env := onStage(t)
	s.turn("Pay.").asks()
	s.exec(`update turnkeeper.asks set arguments = $1`, `{"to":"p`+"\u0430"+`ypal`+"\u3164"+`  x"}`)
	says(t, env, []string{"asks", "show", "1"}, "look closely \"p\u0430ypal\" mixes Latin and Cyrillic",
		`"p`+"\u0430"+`ypal\u3164 \u0020x"`)
	says(t, env, []string{"asks"}, `ypal\u3164 \u0020x`)
}

// TestAnAskThatExpired checks what an operator learns of an ask that waits, of one that has waited for long,
// and of one that nobody answered in time.
func TestAnAskThatExpired(t *testing.T) {
	s, env := onStage(t)
	s.turn("Pay.").asks()
	diagnose(t, env).wants(t, "ok", "asks", "1 for a person: the oldest began now, the first ends in")
	s.exec(`update turnkeeper.asks set opened_at = opened_at - interval '3 hours',
		expires_at = expires_at + interval '1 hour'`)
	s.exec("select turnkeeper.expire_asks(10)")
	diagnose(t, env).wants(t, "warn", "asks", "the oldest began 3 h ago, the first ends in", "turnctl asks approve")
	s.exec("update turnkeeper.asks set expires_at = clock_timestamp() - interval '1 second'")
	s.exec("select turnkeeper.expire_asks(10)")
	says(t, env, []string{"explain", "1"}, "Nobody answered ask 1 (approve pay) before it expired",
		"turnctl asks show 1")
	diagnose(t, env).wants(t, "warn", "ask 1", "nobody answered it before it expired", "of turn 1 of echo",
		"turnctl explain 1")
}
