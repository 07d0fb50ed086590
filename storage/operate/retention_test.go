package operate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/retention"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/policy"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// keptTurn runs a turn of a conversation of desk with a round, an output in chunks, an extraction from it, events and a
// label.
func keptTurn(t *testing.T, h *env, conversation string) *storagetest.Dispatch {
	t.Helper()
	h.Submit("desk", conversation, "x")
	d := h.Dispatch("w")[0]
	marks := []policy.Mark{{Label: policy.Private, Source: "a file"}}
	text := strings.Repeat("0123456789", outputs.ChunkBytes/5)
	d.Write(t, turnlog.Entry{Labels: marks, Round: storagetest.Round(1, turnkeeper.EffectNone),
		Events: storagetest.Events(turnkeeper.EventTurnStart, turnkeeper.EventRoundStart)})
	d.Write(t, turnlog.Entry{Events: storagetest.Events(turnkeeper.EventToolResult), Results: []turnlog.CallResult{{
		Key: storagetest.Key(1, 1), State: turnkeeper.CallSucceeded, Shown: "the beginning", Labels: marks,
		Output: &turnkeeper.Output{ID: turnkeeper.OutputID("output of " + conversation), Text: text,
			MediaType: "text/plain", SizeBytes: int64(len(text)), RawBytes: int64(len(text)),
			Chars: int64(len(text)), SHA256: "s"},
	}}})
	d.Write(t, turnlog.Entry{Round: storagetest.Round(2)})
	part := turnlog.ExtractionKey{SourceSHA256: "s of " + conversation, Query: "numbers", Model: "m", Prompt: 1}
	if err := h.KeepExtraction(t.Context(), d.Grant.TurnID, part, []byte(`["0123"]`)); err != nil {
		t.Fatal(err)
	}
	return d
}

// finish ends a turn with its last event.
func finish(t *testing.T, d *storagetest.Dispatch) {
	t.Helper()
	entry := turnlog.Entry{Events: storagetest.Events(turnkeeper.EventRoundStop, turnkeeper.EventTurnComplete),
		Outcome: storagetest.Succeeded("done")}
	if err := d.Append(t.Context(), entry, storagetest.Answered); err != nil {
		t.Fatal(err)
	}
}

// stored counts what is stored of the classes of a turn.
func stored(h *env, turn turnkeeper.TurnID) string {
	return storagetest.One[string](h, fmt.Sprintf(
		`select format('%%s outputs, %%s chunks, %%s extractions, %%s events, %%s grants, %%s messages',
		(select count(*) from turnkeeper.outputs where turn_id = %[1]d and expired_at is null),
		(select count(*) from turnkeeper.output_chunks c join turnkeeper.outputs o on o.id = c.output_id where o.turn_id = %[1]d),
		(select count(*) from turnkeeper.extractions where turn_id = %[1]d),
		(select count(*) from turnkeeper.turn_events where turn_id = %[1]d),
		(select count(*) from turnkeeper.ended_grants where turn_id = %[1]d),
		(select count(*) from turnkeeper.messages m join turnkeeper.turns t on t.message_id = m.id where t.id = %[1]d))`, turn))
}

// TestEachClassAtItsLimit deletes each class just before, at and just after the age of its limit, by the times in the
// database.
func TestEachClassAtItsLimit(t *testing.T) {
	const whole = "1 outputs, 2 chunks, 1 extractions, 5 events, 1 grants, 1 messages"
	for class, gone := range map[retention.Class]string{
		retention.Outputs:  "0 outputs, 0 chunks, 0 extractions, 5 events, 1 grants, 1 messages",
		retention.Events:   "1 outputs, 2 chunks, 1 extractions, 2 events, 1 grants, 1 messages",
		retention.Leases:   "1 outputs, 2 chunks, 1 extractions, 5 events, 0 grants, 1 messages",
		retention.Messages: "0 outputs, 0 chunks, 0 extractions, 0 events, 0 grants, 0 messages",
	} {
		t.Run(string(class), func(t *testing.T) {
			h := newEnv(t)
			d := keptTurn(t, h, "c")
			finish(t, d)
			turn := d.Grant.TurnID
			for _, step := range []struct{ at, want string }{{"- interval '1 microsecond'", whole}, {"", gone},
				{"+ interval '1 microsecond'", gone}} {
				statement := fmt.Sprintf("select turnkeeper.expire('%s', closed_at %s, 100) from turnkeeper.messages",
					class, step.at)
				if class == retention.Messages {
					statement = fmt.Sprintf(
						"select turnkeeper.purge('', null, '', closed_at %s, 0, 100, false, false) from turnkeeper.messages", step.at)
				}
				h.Exec(statement)
				if got := stored(h, turn); got != step.want {
					t.Errorf("at the close of its message %s, stored are %s, want %s", step.at, got, step.want)
				}
				if broken := h.broken(true); len(broken) > 0 {
					t.Errorf("broken: %q", broken)
				}
			}
		})
	}
}

// TestWhatExpiresAndWhatStays expires all classes of closed and open turns.
func TestWhatExpiresAndWhatStays(t *testing.T) {
	h := newEnv(t)
	closed, running, retried := keptTurn(t, h, "closed"), keptTurn(t, h, "running"), keptTurn(t, h, "retried")
	finish(t, closed)
	failed := turnlog.Entry{Events: storagetest.Events(turnkeeper.EventTurnError),
		Outcome: &turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError, Retry: true}}
	if err := retried.Append(t.Context(), failed, turnlog.Consequence{Message: turnkeeper.MessageWaiting,
		Log: "finished"}); err != nil {
		t.Fatal(err)
	}
	h.Exec(
		`update turnkeeper.turns set created_at = created_at - interval '2 days', granted_at = granted_at - interval '2 days', ended_at = ended_at - interval '2 days'`)
	h.Exec(
		`update turnkeeper.messages set accepted_at = accepted_at - interval '2 days', closed_at = closed_at - interval '2 days'`)
	h.Exec(`update turnkeeper.outputs set created_at = created_at - interval '2 days'`)
	labels := func() string {
		return storagetest.One[string](h, "select string_agg(kind || id, ' ' order by kind, id) from turnkeeper.labels")
	}
	before, history := labels(), func() string {
		return storagetest.One[string](h,
			"select string_agg(concat(text, calls, results), ' ' order by turn_id, n) from turnkeeper.journal")
	}
	told := history()
	open := map[turnkeeper.TurnID]string{}
	for _, d := range []*storagetest.Dispatch{running, retried} {
		open[d.Grant.TurnID] = stored(h, d.Grant.TurnID)
	}
	for range 2 {
		for _, class := range retention.Parts {
			if _, err := h.Expire(t.Context(), class, 24*time.Hour); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := stored(h, closed.Grant.TurnID); got != "0 outputs, 0 chunks, 0 extractions, 2 events, 0 grants, 1 messages" {
		t.Errorf("of the closed turn are left %s", got)
	}
	for turn, want := range open {
		if got := stored(h, turn); got != want {
			t.Errorf("of the turn %d, whose message is open, are left %s, want %s", turn, got, want)
		}
	}
	if labels() != before || history() != told {
		t.Error("labels or the history of later turns have changed")
	}
	if lanes := storagetest.One[string](h,
		"select string_agg(lane, ' ' order by lane) from turnkeeper.leases"); lanes != "desk/retried desk/running" {
		t.Errorf("leases of %s are left", lanes)
	}
	view, err := h.ViewTurn(t.Context(), closed.Grant.TurnID)
	if err != nil || view.Turn.EventsExpiredAt.IsZero() || view.Turn.LeasesExpiredAt.IsZero() ||
		len(view.Outputs) != 1 || view.Outputs[0].ExpiredAt.IsZero() {
		t.Errorf("the turn does not say what has expired: %+v, %v", view.Turn, err)
	}
	o, err := h.Output(t.Context(), "output of closed")
	if err != nil || o.ExpiredAt.IsZero() || o.Text != "" || o.SizeBytes == 0 {
		t.Errorf("the output: %+v, %v", o, err)
	}
	events, err := h.Events(t.Context(), closed.Grant.TurnID, 1, 10)
	if err != nil || len(events) != 2 || events[0].Type != "events_expired" ||
		string(events[0].Data) != `{"first":1,"last":4}` || !events[1].Type.Terminal() || events[1].Seq != 5 {
		t.Errorf("after event 1 come %+v, %v", events, err)
	}
	h.Submit("desk", "closed", "y")
	var later *storagetest.Dispatch
	for _, d := range h.Dispatch("w") { // maybe with the one that is tried again
		if d.Record.Turn.Conversation == "closed" {
			later = d
		}
	}
	if len(later.Record.History) != 1 || later.Grant.Token <= closed.Grant.Token {
		t.Errorf("the next turn of the conversation sees %d turns, and has token %d", len(later.Record.History),
			later.Grant.Token)
	}
	if broken := h.broken(false); len(broken) > 0 {
		t.Errorf("broken: %q", broken)
	}
}

// TestExpiryGoesOnAfterAFailure sets the turn aside at which it fails, in each class.
func TestExpiryGoesOnAfterAFailure(t *testing.T) {
	for class, event := range map[retention.Class]string{
		retention.Outputs: "update on turnkeeper.outputs", retention.Events: "update on turnkeeper.journal",
		retention.Leases: "delete on turnkeeper.ended_grants",
	} {
		t.Run(string(class), func(t *testing.T) {
			h := newEnv(t)
			for _, name := range []string{"a", "b", "c"} {
				finish(t, keptTurn(t, h, name))
			}
			heal := h.poison(event, "old.turn_id = 2")
			if done, err := h.Expire(t.Context(), class, 0); err != nil ||
				done != (operate.Expired{Turns: 2, Kept: 1}) {
				t.Errorf("%+v, %v", done, err)
			}
			if got := h.aside(); got != "purge 2: a fault of the test" {
				t.Errorf("set aside: %s", got)
			}
			heal()
			h.Exec("update turnkeeper.set_aside set next_try = clock_timestamp()")
			if done, err := h.Expire(t.Context(), class, 0); err != nil || done != (operate.Expired{Turns: 1}) {
				t.Errorf("%+v, %v", done, err)
			}
			if got := h.aside(); got != "" {
				t.Errorf("set aside: %s", got)
			}
		})
	}
}

// TestRetentionReadsNoWholeTable counts the rows that retention reads where few of many may go, and where none may.
func TestRetentionReadsNoWholeTable(t *testing.T) {
	const many, old, times, bound = 20_000, 10, 7, 200
	h := newEnv(t)
	h.Exec(
		`insert into turnkeeper.messages (agent, conversation, lane, body, state, attempts, accepted_at, due_at, closed_at, turn_id)
		select 'desk', 'c', 'desk/c', 'x', 'succeeded', 1, at, at, at, i from generate_series(1, $1::integer) i, lateral (select now() - make_interval(hours => $1 - i) as at) a`, many)
	h.Exec(
		`insert into turnkeeper.turns (message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token, created_at, ended_at, stop_reason, events_expired_at, leases_expired_at)
		select id, 1, 'desk', 'c', 'desk/c', 'message', repeat('a', 64), 'succeeded', id, closed_at, closed_at, 'none', gone, gone
		from turnkeeper.messages, lateral (select case when id <= $1::integer - 1000 then now() end as gone) g`, many)
	h.Exec(
		`insert into turnkeeper.outputs (id, turn_id, round, ordinal, media_type, content, size_bytes, raw_bytes, chars, tokens, sha256, incomplete, description, created_at, expired_at)
		select id, id, 1, 1, 'text/plain', '', 1, 1, 1, 1, 'x', false, '', ended_at, events_expired_at from turnkeeper.turns`)
	h.Exec("analyze turnkeeper.messages, turnkeeper.turns, turnkeeper.outputs")
	for _, statement := range []string{
		"select done from turnkeeper.expire('outputs', $1, 100)",
		"select done from turnkeeper.expire('events', $1, 100)",
		"select done from turnkeeper.expire('leases', $1, 100)",
		"select messages from turnkeeper.purge('', null, '', $1, 0, 100, true, false)",
	} {
		for name, c := range map[string]struct {
			hours int
			done  int64
		}{"none": {many + 1000, 0}, "few": {1000 - old, old}} {
			if strings.Contains(statement, "purge") && name == "few" {
				c.hours = many - old
			}
			tx, err := h.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			counted := func() (rows int64) {
				err := tx.QueryRow(t.Context(),
					`select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_xact_user_tables
					where schemaname = 'turnkeeper' and relname in ('messages', 'turns', 'outputs')`).Scan(&rows)
				if err != nil {
					t.Fatal(err)
				}
				return rows
			}
			var done int64
			before := counted()
			for range times { // so that Postgres may choose a generic plan
				if _, err := tx.Exec(t.Context(), "savepoint again"); err != nil {
					t.Fatal(err)
				}
				err = tx.QueryRow(t.Context(), statement, time.Now().Add(-time.Duration(c.hours)*time.Hour)).Scan(&done)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(t.Context(), "rollback to again"); err != nil {
					t.Fatal(err)
				}
			}
			if read := counted() - before; done < c.done || done > c.done+1 || read > times*bound {
				t.Errorf("%s, %s: %d done, %d rows read in %d times", statement, name, done, read, times)
			}
			_ = tx.Rollback(t.Context())
		}
	}
}

// TestHowLongANewDatabaseKeeps checks the one fact by which new databases differ from older ones.
func TestHowLongANewDatabaseKeeps(t *testing.T) {
	h := newEnv(t)
	if kept, err := h.KeptFor(t.Context()); err != nil || kept != 30*24*time.Hour {
		t.Errorf("a new database keeps outputs and events for %s, %v", kept, err)
	}
	h.Exec("update turnkeeper.settings set kept_for = null") // an older one
	if kept, err := h.KeptFor(t.Context()); err != nil || kept != 0 {
		t.Errorf("an older database keeps them for %s, %v", kept, err)
	}
}

// TestWhatRetentionCouldDelete checks the figures by which doctor proposes a retention.
func TestWhatRetentionCouldDelete(t *testing.T) {
	h := newFresh(t)
	empty, err := h.StoredParts(t.Context())
	if err != nil || !empty.Oldest.IsZero() {
		t.Errorf("of nothing: %+v, %v", empty, err)
	}
	d := keptTurn(t, h, "c")
	finish(t, d)
	full, err := h.StoredParts(t.Context())
	if view, _ := h.ViewTurn(t.Context(), d.Grant.TurnID); err != nil || full.Bytes <= empty.Bytes ||
		!full.Oldest.Equal(view.Turn.EndedAt) {
		t.Errorf("of a turn: %+v after %+v, %v", full, empty, err)
	}
	if _, err := h.Expire(t.Context(), retention.Events, 0); err != nil {
		t.Fatal(err)
	}
	if after, err := h.StoredParts(t.Context()); err != nil || !after.Oldest.IsZero() {
		t.Errorf("after its events have expired: %+v, %v", after, err)
	}
}

// TestExpiredPinsAreDeleted deletes the pins that hold no more, by age and by a purge.
func TestExpiredPinsAreDeleted(t *testing.T) {
	h := newEnv(t)
	pins := func() string {
		return storagetest.One[string](h,
			"select coalesce(string_agg(agent, ' ' order by agent), '') from turnkeeper.pinned_levels")
	}
	pin := func() {
		h.Exec(
			`insert into turnkeeper.pinned_levels (agent, level, pinned_by, pinned_at, until) values ('clerk', 'low', 'ada', now() - interval '2 h', now() - interval '1 h'),
			('desk', 'low', 'ada', now() - interval '2 h', now() - interval '1 h') on conflict do nothing`)
	}
	h.Exec(
		"insert into turnkeeper.pinned_levels (agent, level, pinned_by, until) values ('', 'low', 'ada', null), ('other', 'low', 'ada', now() + interval '1 h')")
	pin()
	if err := h.ForgetPins(t.Context()); err != nil || pins() != " other" {
		t.Errorf("left are %q, %v", pins(), err)
	}
	pin()
	if _, err := h.Purge(t.Context(), operate.PurgeScope{Agent: "desk"}); err != nil || pins() != " clerk other" {
		t.Errorf("after a purge of desk, left are %q, %v", pins(), err)
	}
}
