package operate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// poison makes each write of an event to the rows of a table fail, until heal is called.
func (h *env) poison(on, condition string) (heal func()) {
	h.T.Helper()
	h.Exec(
		"create function poison() returns trigger language plpgsql as $$ begin raise exception 'a fault of the test'; end $$")
	h.Exec(fmt.Sprintf("create trigger poison before %s for each row when (%s) execute function poison()",
		on, condition))
	return func() {
		h.T.Helper()
		h.Exec("drop function poison cascade")
	}
}

// aside returns what is set aside, as KIND ID: ERROR.
func (h *env) aside() string {
	h.T.Helper()
	rows, err := h.Aside(h.T.Context())
	if err != nil {
		h.T.Fatal(err)
	}
	var all []string
	for _, a := range rows {
		all = append(all, string(a.Kind)+" "+a.ID+": "+a.Error)
	}
	return strings.Join(all, "; ")
}

// A function that works on many rows does so for all but the one that fails, which it sets aside until its next try.
// Once it is well, it is worked on like any other.
func TestOneRowFailsInALoop(t *testing.T) {
	for _, c := range []struct {
		name     string
		setUp    string // two rows
		poison   [2]string
		run      string
		done     string // counts the rows that are done
		want     string // what is set aside
		untilFar string // makes more rows due, after the next try
	}{
		{
			name: "expire_asks",
			setUp: `insert into turnkeeper.asks (turn_id, round, ordinal, kind, n, tool, arguments, args_hash, rule, reason, audience, hold, opened_at, expires_at)
				select t.id, 1, 1, 'approve', 1, 'pay', '{}', 'h', '', '', '{}', true, now() - interval '2 h', now() - interval '1 h' from turnkeeper.turns t`,
			poison: [2]string{"update on turnkeeper.asks", "old.turn_id = %d"},
			run:    "select turnkeeper.expire_asks(10)",
			done:   "select count(*) from turnkeeper.asks where state = 'expired'", want: "ask 1: a fault of the test",
		},
		{
			name:   "move_lanes",
			setUp:  "update turnkeeper.agents set lane_per_conversation = false, lanes_changed_at = now() where name = 'desk'",
			poison: [2]string{"update on turnkeeper.messages", "old.body = 'waits 1'"},
			run:    "select turnkeeper.move_lanes(true)",
			done:   "select count(*) from turnkeeper.messages where state = 'waiting' and lane = 'desk'",
			want:   "message 3: a fault of the test",
		},
		{
			name: "settle_spawned",
			setUp: `with roots as (insert into turnkeeper.agent_trees (root, max_depth, max_agents) select id, 1, 1 from turnkeeper.turns returning root)
				insert into turnkeeper.spawned_calls (turn_id, round, ordinal, agent, root, agents, deadline, failure, ended_at)
				select root, 1, 1, 'desk', root, '{desk,desk}', now(), 'unknown_agent', now() from roots`,
			poison: [2]string{"update on turnkeeper.spawned_calls", "old.turn_id = %d"},
			run:    "select turnkeeper.settle_spawned(true, 10)",
			done:   "select count(*) from turnkeeper.spawned_calls where notified_at is not null",
			want:   "sub_agent %d/1/1: a fault of the test",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newEnv(t)
			h.Submit("desk", "a", "x")
			h.Submit("desk", "b", "x")
			first := int64(h.Dispatch("w")[0].Grant.TurnID)
			h.Submit("desk", "a", "waits 1")
			h.Submit("desk", "b", "waits 2")
			filled := func(text string) string { return strings.ReplaceAll(text, "%d", fmt.Sprint(first)) }
			h.Exec(c.setUp)
			heal := h.poison(c.poison[0], filled(c.poison[1]))
			for range 2 {
				h.Exec(c.run)
				if got := storagetest.One[int](h, c.done); got != 1 {
					t.Errorf("%d are done beside the one that fails, want 1", got)
				}
				if got := h.aside(); got != filled(c.want) {
					t.Errorf("set aside: %s, want %s", got, filled(c.want))
				}
			}
			if n := storagetest.One[int](h, "select failures from turnkeeper.set_aside"); n != 1 {
				t.Errorf("it was tried %d times within its pause", n)
			}
			heal()
			h.Exec("update turnkeeper.set_aside set next_try = clock_timestamp()")
			h.Exec(c.run)
			if got := storagetest.One[int](h, c.done); got != 2 {
				t.Errorf("%d are done once it is well, want 2", got)
			}
		})
	}
}

// A fault that concerns all is not blamed on a row.
func TestAFullDiskSetsNothingAside(t *testing.T) {
	h := newEnv(t)
	for code, want := range map[string]bool{"P0001": true, "23505": true, "22P02": true, "55P03": true, "40P01": true,
		"57014": true, "53100": false, "57P01": false, "08006": false, "25006": false, "58030": false} {
		if got := storagetest.One[bool](h, "select turnkeeper.belongs_to_row('"+code+"')"); got != want {
			t.Errorf("%s belongs to a row: %v", code, got)
		}
	}
}

// A purge deletes all but the message that cannot be deleted, and says which that is.
func TestAPurgeGoesOnAfterAFailure(t *testing.T) {
	h := newEnv(t)
	for i := range 5 {
		h.reply(fmt.Sprint("message ", i))
	}
	heal := h.poison("delete on turnkeeper.messages", "old.body = 'message 2'")
	for range 2 {
		done, err := h.Purge(t.Context(), operate.PurgeScope{})
		if err != nil {
			t.Fatal(err)
		}
		if left := storagetest.One[string](h,
			"select string_agg(body, ', ') from turnkeeper.messages"); left != "message 2" || done.Kept != 1 {
			t.Errorf("left are %s, and %d are kept", left, done.Kept)
		}
		if n := storagetest.One[int](h,
			"select count(*) from turnkeeper.journal j where exists (select from turnkeeper.turns t where t.id = j.turn_id)"); n == 0 {
			t.Error("the journal of the message that is kept was deleted")
		}
		if got := h.aside(); got != "purge 3: a fault of the test" {
			t.Errorf("set aside: %s", got)
		}
	}
	heal()
	if done, err := h.Purge(t.Context(), operate.PurgeScope{}); err != nil || done.Messages != 1 || done.Kept != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if got := h.aside(); got != "" {
		t.Errorf("set aside: %s", got)
	}
}

// Deliveries are claimed without the one whose row cannot be written.
func TestClaimsWithoutADeliveryThatFails(t *testing.T) {
	h := newEnv(t)
	h.hook("all")
	for i := range 3 {
		h.reply(fmt.Sprint("reply ", i))
	}
	heal := h.poison("update on turnkeeper.webhook_deliveries", "old.reply_id = 1")
	if got := fmt.Sprint(ids(h.claim("all", "w", 9, 9))); got != "[2 3]" {
		t.Errorf("claimed replies %s", got)
	}
	if got := h.aside(); got != "delivery 1: a fault of the test" {
		t.Errorf("set aside: %s", got)
	}
	if wait, pending, err := h.NextDelivery(t.Context(), "all"); err != nil || !pending || wait < 10*time.Second {
		t.Errorf("the next delivery is due in %s, pending %v, %v", wait, pending, err)
	}
	heal()
	h.Exec("update turnkeeper.set_aside set next_try = clock_timestamp()")
	claims := h.claim("all", "w", 9, 9)
	if got := fmt.Sprint(ids(claims)); got != "[1]" {
		t.Errorf("claimed replies %s", got)
	}
	if got := h.aside(); got != "" {
		t.Errorf("set aside: %s", got)
	}
	h.end(claims[0], outbox.DeliveryEnd{State: outbox.DeliveryDelivered})
}

// A journal that cannot be read, in any part, makes no list fail, and the turn is shown with the reason.
func TestListsWithAnUnreadableJournal(t *testing.T) {
	for _, broken := range []string{"answer = '[1]'", `answer = '{"attempts": "many"}'`, "calls = '5'",
		"results = '{}'", "data = array_fill('{'::text, array[cardinality(data)])"} {
		t.Run(broken, func(t *testing.T) {
			h := newEnv(t)
			d := h.Turn("unreadable")
			d.Write(t, turnlog.Entry{
				Round: storagetest.Round(1, turnkeeper.EffectNone),
				Events: []turnkeeper.Event{{Type: turnkeeper.EventRoundStart, Round: 2, Data: []byte(`{}`)},
					{Type: turnkeeper.EventBlockDelta, Round: 2, Data: []byte(`{"text":"a"}`)}},
			})
			h.Submit("desk", "b", "readable")
			h.Dispatch("w")
			h.Exec("update turnkeeper.journal set " + broken)
			turns, err := h.Turns(t.Context(), operate.Page{})
			if err != nil || len(turns) != 2 {
				t.Fatalf("turns: %d, %v", len(turns), err)
			}
			if _, err := h.OpenTurns(t.Context(), 10); err != nil {
				t.Errorf("open turns: %v", err)
			}
			if _, err := h.Messages(t.Context(), operate.Page{}); err != nil {
				t.Errorf("messages: %v", err)
			}
			if _, _, err := h.Transcript(t.Context(), operate.Page{Agent: d.Record.Turn.Agent},
				d.Record.Turn.Conversation); err != nil {
				t.Errorf("transcript: %v", err)
			}
			if _, err := h.LossyTurns(t.Context(), time.Hour); err != nil {
				t.Errorf("turns that lost workers: %v", err)
			}
			if _, err := h.ViewTurn(t.Context(), d.Grant.TurnID); err != nil {
				t.Errorf("the turn: %v", err)
			}
		})
	}
}

// Infinite times, which only an administrator who drops the rule can write, can be read.
func TestInfiniteTimesAreRead(t *testing.T) {
	h := newEnv(t)
	h.Turn("y").Finish(t, "done")
	h.Exec("alter table turnkeeper.turns drop constraint times_in_range")
	h.Exec("update turnkeeper.turns set granted_at = '-infinity', ended_at = 'infinity'")
	turns, err := h.Turns(t.Context(), operate.Page{})
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	if err != nil || len(turns) == 0 || !turns[len(turns)-1].EndedAt.Equal(last) ||
		turns[len(turns)-1].GrantedAt.IsZero() {
		t.Errorf("%+v, %v", turns, err)
	}
}

// A message that is set aside says so, and a retry makes it due.
func TestAMessageSaysThatItIsSetAside(t *testing.T) {
	h := newEnv(t)
	id := h.Submit("desk", "b", "waits")
	h.Exec("select turnkeeper.put_aside('message', $1, '22023', 'the message fails')", fmt.Sprint(id))
	m, err := h.WaitingMessage(t.Context(), id)
	if err != nil || len(m.Waits) == 0 || m.Waits[0].Reason != waiting.SetAside ||
		m.Waits[0].Why != "the message fails" {
		t.Errorf("it waits for %+v, %v", m.Waits, err)
	}
	if _, err := h.Retry(t.Context(), id, false); err != nil {
		t.Error(err)
	}
	if n := storagetest.One[int](h,
		"select count(*) from turnkeeper.set_aside where next_try <= clock_timestamp()"); n != 1 {
		t.Errorf("%d are tried at once, want 1", n)
	}
}

// The table of what is set aside takes no ids that its readers could not cast.
func TestTheIdsOfWhatIsSetAside(t *testing.T) {
	h := newEnv(t)
	number, call := []string{"17"}, []string{"17/1/2"}
	for kind, ids := range map[string][]string{
		"message": number, "turn": number, "ask": number, "delivery": number, "purge": number, "call": call,
		"sub_agent": call,
		"schedule":  {"daily/morning"}, "agent": {"daily"}, "step": {"grants"}, "tick": {""},
	} {
		for _, id := range ids {
			h.Exec("select turnkeeper.put_aside($1, $2, '22023', 'x')", kind, id)
		}
		if kind == "schedule" || kind == "agent" || kind == "step" || kind == "tick" {
			continue
		}
		for _, id := range []string{"", "x", "-1", "17 ", " 17", "1e3", "17/1", "17/x/2", "17/1/2/3",
			"9223372036854775808", "17/1/99999999999", "17\n"} {
			if _, err := h.Pool().Exec(t.Context(), "select turnkeeper.put_aside($1, $2, '22023', 'x')", kind,
				id); err == nil || !strings.Contains(err.Error(), "id_fits_kind") {
				t.Errorf("%s %q: %v", kind, id, err)
			}
		}
	}
	if _, err := h.Pool().Exec(t.Context(), "select turnkeeper.put_aside('other', '1', '', 'x')"); err == nil {
		t.Error("an unknown kind is taken")
	}
	h.Exec("select turnkeeper.forget_aside()")
	if left := storagetest.One[string](h,
		"select string_agg(kind, ' ' order by kind) from turnkeeper.set_aside"); left != "agent step tick" {
		t.Errorf("left are %s", left)
	}
}
