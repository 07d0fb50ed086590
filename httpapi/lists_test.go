package httpapi_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/operate"
)

func (h *env) mustBeat(b presence.Heartbeat) {
	h.t.Helper()
	b.TakeoverAfter = time.Hour
	if err := h.Beat(h.t.Context(), b); err != nil {
		h.t.Fatal(err)
	}
}

// lacks fails the test if the page contains one of the texts.
func (a answer) lacks(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(string(a.body), text) {
			t.Errorf("the page says %q:\n%s", text, a.body)
		}
	}
}

func TestWhatIsGoingOn(t *testing.T) {
	h := newEnv(t)
	running := h.turn("clerk", "work")
	running.write(turnlog.Entry{
		Failed: []turnlog.FailedAttempt{{Round: 1, Attempt: 1, Provider: "p", Model: "m", Class: "overloaded",
			Error: "503"}},
		Events: []turnkeeper.Event{
			{Type: turnkeeper.EventRoundStart, Round: 1, Data: []byte(`{}`)},
			{Type: turnkeeper.EventBlockDelta, Round: 1, Block: 1, Data: fmt.Appendf(nil, `{"text":%q}`,
				strings.Repeat("word", 100))},
		},
	}, turnlog.Consequence{})
	turn := fmt.Sprintf("/turns/%d", running.id)
	type turnView struct {
		WorkerID string `json:"worker_id"`
		UnderWay *struct {
			Round  int
			Tokens int64 `json:"output_tokens"`
			Since  *time.Time
		} `json:"under_way"`
		Silence *struct {
			SilentMs int64     `json:"silent_ms"`
			At       time.Time `json:"taken_over_at"`
		} `json:"worker_silence"`
	}
	v := decode[turnView](t, h.ask("GET", "/v1"+turn, ""))
	if v.WorkerID != "worker-1" || v.UnderWay == nil || v.UnderWay.Round != 1 || v.UnderWay.Tokens != 100 ||
		v.UnderWay.Since == nil || v.Silence != nil {
		t.Errorf("%+v", v)
	}
	list := decode[struct{ Items []turnView }](t, h.ask("GET", "/v1/turns", ""))
	if len(list.Items) != 1 || list.Items[0].UnderWay == nil || list.Items[0].WorkerID != "worker-1" {
		t.Errorf("%+v", list)
	}
	const streams = "round 1 streams, ~100 tokens so far"
	h.ask("GET", turn, "").wantPage(t, 200, streams, "Round 1: p/m", "overloaded")
	h.ask("GET", turn, "").lacks(t, "in tools", "has been silent")
	h.ask("GET", "/turns", "").wantPage(t, 200, streams)
	h.ask("GET", "/", "").wantPage(t, 200, streams, "No worker runs turns")

	h.mustBeat(presence.Heartbeat{WorkerID: "worker-1", Roles: []string{"worker"}, Slots: 5})
	h.mustBeat(presence.Heartbeat{WorkerID: "front", Roles: []string{"api"}})
	overview := h.ask("GET", "/", "")
	overview.wantPage(t, 200, "serving")
	overview.lacks(t, "draining", "No worker runs turns")

	if _, err := h.Enqueue(t.Context(), turnkeeper.Submission{Agent: "clerk", Body: "next"}); err != nil {
		t.Fatal(err)
	}
	type message struct {
		Outcome *string
		Waits   []struct {
			Reason, Detail string
			Until          *time.Time
			TurnID         *int64 `json:"turn_id"`
		}
	}
	m := decode[message](t, h.ask("GET", "/v1/messages/2", ""))
	if m.Outcome != nil || len(m.Waits) == 0 || m.Waits[0].Reason != "lane_held" || m.Waits[0].Until == nil ||
		m.Waits[0].TurnID == nil ||
		!strings.HasPrefix(m.Waits[0].Detail, fmt.Sprintf("turn %d of worker worker-1 holds lane clerk, at most until ",
			running.id)) {
		t.Errorf("%+v", m)
	}
	h.mustBeat(presence.Heartbeat{WorkerID: "worker-1", Slots: 5})
	if m := decode[message](t, h.ask("GET", "/v1/messages/1", "")); m.Waits == nil || len(m.Waits) != 0 {
		t.Errorf("of the message whose turn runs: %+v", m)
	}
	h.ask("GET", "/inbox/2", "").wantPage(t, 200, "Waits for</h2>",
		fmt.Sprintf("turn %d of worker worker-1 holds lane clerk", running.id))
	h.mustBeat(presence.Heartbeat{WorkerID: "worker-1", Slots: 5})
	h.ask("GET", "/inbox/1", "").lacks(t, "Waits for</h2>")

	if _, err := h.Pool().Exec(t.Context(),
		"update turnkeeper.worker_heartbeat set beat_at = clock_timestamp() - interval '40 s', takeover_after = interval '15 s' where worker_id = 'worker-1'"); err != nil {
		t.Fatal(err)
	}
	if v := decode[turnView](t, h.ask("GET", "/v1"+turn, "")); v.Silence == nil || v.Silence.SilentMs < 40_000 ||
		v.Silence.At.IsZero() {
		t.Errorf("%+v", v)
	}
	h.ask("GET", "/v1/lanes", "").want(t, 200, `"worker_silence":{"silent_ms":`)
	const silent = "worker worker-1 has been silent for "
	for _, path := range []string{turn, "/inbox/1", "/inbox/2", "/lanes"} {
		h.ask("GET", path, "").wantPage(t, 200, silent, "is taken over at")
	}
	for _, path := range []string{"/", "/turns", "/inbox"} {
		h.ask("GET", path, "").wantPage(t, 200, "worker silent for ")
	}
	h.ask("GET", "/", "").wantPage(t, 200, "No worker runs turns")

	if err := h.PauseScheduler(t.Context(), "repairs."); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/lanes", "/schedules"} {
		page := h.ask("GET", path, "")
		page.wantPage(t, 200, "The scheduler is paused", "repairs. No turn")
		page.lacks(t, "repairs..")
	}
	if _, err := h.Pool().Exec(t.Context(),
		"update turnkeeper.schedules set next_due = clock_timestamp() - interval '1 minute'"); err != nil {
		t.Fatal(err)
	}
	for _, agent := range []string{"clerk", "desk"} {
		h.submit("/schedules/"+agent+"/daily/pause", url.Values{"reason": {"too many"}}).wantRedirect(t,
			"/schedules?done=schedule")
	}
	schedules := h.ask("GET", "/schedules", "")
	schedules.wantPage(t, 200, "since <time", "too many")
	schedules.lacks(t, "1 min ago")
	h.ask("GET", "/agents", "").wantPage(t, 200, "schedule daily paused")
	h.ask("GET", "/v1/schedules", "").want(t, 200, `"paused_reason":"too many","next_due":null`)
	h.ask("GET", "/v1/agents", "").want(t, 200, `"paused_schedules":["daily"]`)
}

// TestOutcomesOfReplies checks that degraded and failed replies look different from successful ones.
func TestOutcomesOfReplies(t *testing.T) {
	h := newEnv(t)
	ends := []struct {
		state   turnkeeper.TurnState
		message turnkeeper.MessageState
		tone    string
	}{
		{turnkeeper.TurnSucceeded, turnkeeper.MessageSucceeded, "good"}, {turnkeeper.TurnDegraded,
			turnkeeper.MessageDegraded, "warn"},
		{turnkeeper.TurnFailed, turnkeeper.MessageFailed, "bad"}, {turnkeeper.TurnCancelled,
			turnkeeper.MessageCancelled, "warn"},
	}
	for i, end := range ends {
		d := h.turn("clerk", "work")
		d.end(end.state, end.message, "What came of it.")
		bar := `<pre class="said-text reply ` + end.tone + `" dir="auto">What came of it.`
		for _, path := range []string{fmt.Sprintf("/turns/%d", d.id), fmt.Sprintf("/inbox/%d", i+1)} {
			a := h.ask("GET", path, "")
			a.wantPage(t, 200, bar, string(end.state))
			a.lacks(t, "answered</span>")
		}
		h.ask("GET", fmt.Sprintf("/v1/messages/%d", i+1), "").want(t, 200, fmt.Sprintf(`"outcome":%q`, end.state))
	}
	inbox := h.ask("GET", "/inbox", "")
	inbox.wantPage(t, 200, "succeeded</span>", "degraded</span>")
	inbox.lacks(t, "answered</span>")
	last := h.ask("GET", "/turns/4", "") // cancelled before it called a tool
	last.wantPage(t, 200, "No tool with an effect was started")
	last.lacks(t, "may have had effects")
	h.submit("/turns/4/retry", url.Values{"anyway": {"yes"}}).wantRedirect(t, "/inbox/5?done=retried")
}

// TestWhatSendersAreTold checks that a token with only the scope send sees why a message waits, but no text for
// operators.
func TestWhatSendersAreTold(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	h.turn("clerk", "work")
	h.mustBeat(presence.Heartbeat{WorkerID: "worker-1", Slots: 5})
	if _, err := h.Enqueue(t.Context(), turnkeeper.Submission{Agent: "clerk", Body: "next"}); err != nil {
		t.Fatal(err)
	}
	if err := h.PauseScheduler(t.Context(), "the bill is unpaid"); err != nil {
		t.Fatal(err)
	}
	one[int](h, "update turnkeeper.messages set last_error = 'said the provider' where id = 2 returning 1")
	for scope, told := range map[string]bool{"send": false, "read": true} {
		token := h.token(operate.Token{Name: scope, Scopes: []string{"send", scope}})
		a := h.ask("GET", "/v1/messages/2", "", "Authorization", token)
		a.want(t, 200, `"reason":"lane_held"`)
		a.want(t, 200, `"reason":"scheduler_paused"`)
		for _, secret := range []string{"worker-1", "the bill is unpaid", "said the provider"} {
			if strings.Contains(string(a.body), secret) != told {
				t.Errorf("who may %s is told %q: %t", scope, secret, !told)
			}
		}
	}
}
