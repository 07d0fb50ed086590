package operate_test

import (
	"context"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// TestAPurgeForgetsLanes purges conversations. Those with open work keep their lanes. The names of
// the other lanes, in which something had failed, are removed. If such a lane is used again, its tokens continue.
func TestAPurgeForgetsLanes(t *testing.T) {
	h := newEnv(t)
	turn := func(conversation string) *storagetest.Dispatch {
		h.Submit("desk", conversation, "x")
		return h.Dispatch("w")[0]
	}
	var token int64
	for range 3 {
		d := turn("a name")
		token = d.Grant.Token
		d.Finish(t, "done")
	}
	turn("waits").Finish(t, "done")
	turn("kept").Finish(t, "done")
	turn("runs")
	h.Exec(`insert into turnkeeper.leases (lane, agent, failures) select distinct lane, agent, 1 from turnkeeper.turns
		where ended_at is not null`)
	h.Submit("desk", "waits", "x")
	lanes := func() string {
		return storagetest.One[string](h, "select string_agg(lane, ', ' order by lane) from turnkeeper.leases")
	}
	for _, step := range []struct {
		scope operate.PurgeScope
		want  string
	}{
		{operate.PurgeScope{Agent: "desk", Conversation: "a name", Dry: true},
			"desk/a name, desk/kept, desk/runs, desk/waits"},
		{operate.PurgeScope{Agent: "clerk"}, "desk/a name, desk/kept, desk/runs, desk/waits"},
		{operate.PurgeScope{Agent: "desk", Conversation: "a name"}, "desk/kept, desk/runs, desk/waits"},
		{operate.PurgeScope{}, "desk/runs, desk/waits"},
	} {
		if _, err := h.Purge(t.Context(), step.scope); err != nil {
			t.Fatal(err)
		}
		if got := lanes(); got != step.want {
			t.Errorf("after %+v the lanes are %s, want %s", step.scope, got, step.want)
		}
	}
	h.Submit("desk", "a name", "x")
	for _, d := range h.Dispatch("w") {
		if d.Record.Turn.Lane == "desk/a name" && d.Grant.Token <= token {
			t.Errorf("the lane's token is %d after %d", d.Grant.Token, token)
		}
	}
}

// A gentle purge deletes the same as any other, and ends with its context.
func TestAGentlePurge(t *testing.T) {
	h := newEnv(t)
	h.Exec(`insert into turnkeeper.messages (agent, lane, body, state, closed_at)
		select 'clerk', 'clerk', 'x', 'failed', now() - interval '1 day' from generate_series(1, 250)`)
	ended, stop := context.WithCancel(t.Context())
	stop()
	if done, err := h.Purge(ended, operate.PurgeScope{Gently: true}); err == nil || done.Messages > 100 {
		t.Errorf("after its end it deleted %d messages: %v", done.Messages, err)
	}
	if done, err := h.Purge(t.Context(), operate.PurgeScope{Gently: true}); err != nil || done.Messages != 250 {
		t.Errorf("%d messages deleted: %v", done.Messages, err)
	}
}

// TestAPurgeDeletesLabels checks that labels go with what has them, and with nothing else: the label of a note stays.
func TestAPurgeDeletesLabels(t *testing.T) {
	h := newEnv(t)
	marks := []policy.Mark{{Label: policy.Private, Source: "a file"}}
	if err := h.WriteNote(t.Context(), turnkeeper.ConversationKey{Agent: "desk"}, "n", "text", marks); err != nil {
		t.Fatal(err)
	}
	files := journal.NewFiles(h.Store.DB)
	for agent, path := range map[string]string{"desk": "/r/desk", "clerk": "/r/clerk"} {
		if err := files.WriteFile(t.Context(), agent, path, marks, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	h.Submit("desk", "first", "x")
	first := h.Dispatch("w")[0]
	first.Write(t, turnlog.Entry{Labels: marks, Round: storagetest.Round(1, turnkeeper.EffectNone)})
	first.Write(t, turnlog.Entry{Results: []turnlog.CallResult{{Key: storagetest.Key(1, 1),
		State: turnkeeper.CallSucceeded, Shown: "x", Labels: marks}}})
	first.Finish(t, "done")
	h.Submit("desk", "first", "x")
	second := h.Dispatch("w")[0]
	second.Write(t, turnlog.Entry{Labels: second.Record.Labels.Before, Round: storagetest.Round(1),
		Summary: &turnlog.Summary{UpTo: first.Grant.TurnID, Text: "s", Labels: marks}})
	second.Finish(t, "done")
	kinds := func() string {
		return storagetest.One[string](h, "select string_agg(distinct kind, ', ' order by kind) from turnkeeper.labels")
	}
	if got := kinds(); got != "call, file, note, reply, summary, turn" {
		t.Errorf("labelled: %s", got)
	}
	if broken := h.broken(false); len(broken) != 0 {
		t.Errorf("broken: %q", broken)
	}
	if _, err := h.Purge(t.Context(), operate.PurgeScope{}); err != nil {
		t.Fatal(err)
	}
	if got := kinds(); got != "file, note" {
		t.Errorf("labelled after the purge: %s", got)
	}
	_, labels, _, err := h.ReadNote(t.Context(), turnkeeper.ConversationKey{Agent: "desk"}, "n")
	if err != nil || len(labels) != 1 || labels[0] != marks[0] {
		t.Errorf("labels of the note: %+v, %v", labels, err)
	}
	if err := h.WriteNote(t.Context(), turnkeeper.ConversationKey{Agent: "desk"}, "n", "another text",
		nil); err != nil {
		t.Fatal(err)
	}
	if all, err := h.ListNotes(t.Context(), turnkeeper.ConversationKey{Agent: "desk"}); err != nil ||
		len(all[0].Labels) != 0 {
		t.Errorf("the note with another text: %+v, %v", all, err)
	}
	if _, err := h.Purge(t.Context(), operate.PurgeScope{Agent: "desk", Notes: true, Dry: true}); err != nil {
		t.Fatal(err)
	}
	if got := storagetest.One[int](h, "select count(*) from turnkeeper.files"); got != 2 {
		t.Errorf("%d files after a dry purge", got)
	}
	if _, err := h.Purge(t.Context(), operate.PurgeScope{Agent: "desk", Notes: true}); err != nil {
		t.Fatal(err)
	}
	if got := storagetest.One[string](h,
		"select string_agg(kind || ' ' || name, ', ') from turnkeeper.labels"); got != "file /r/clerk" {
		t.Errorf("labelled after a purge of the agent: %s", got)
	}
}

// TestWhoseLabelsAreForgotten deletes one of several things that have labels, and writes a note again.
func TestWhoseLabelsAreForgotten(t *testing.T) {
	h := newEnv(t)
	h.Exec(
		"insert into turnkeeper.messages (id, agent, conversation, lane, body) overriding system value select i, 'desk', 'c', 'desk/c', 'x' from generate_series(11, 14) i")
	h.Exec(
		`insert into turnkeeper.turns (id, message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token, ended_at, stop_reason)
		select i, i, 1, 'desk', 'c', 'desk/c', 'message', repeat('a', 64), 'failed', 1, clock_timestamp(), 'none' from generate_series(13, 14) i`)
	h.Exec(
		"insert into turnkeeper.summaries (agent, conversation, up_to, content, turn_id) select 'desk', 'c', i, 's', i + 1 from generate_series(11, 12) i")
	h.Exec(
		"insert into turnkeeper.notes (agent, name, content) values ('clerk', 'n', 'x'), ('clerk', 'm', 'x'), ('desk', 'n', 'x')")
	h.Exec(
		"insert into turnkeeper.notes (agent, user_name, conversation, name, content) values ('clerk', 'anna', '', 'n', 'x'), ('clerk', '', 'c', 'n', 'x')")
	h.Exec(`insert into turnkeeper.labels (kind, id, label, source) select kind, id, 'private', 'a file'
		from unnest(array['call', 'turn', 'message', 'reply', 'summary']) kind, generate_series(11, 14) id`)
	h.Exec(
		"insert into turnkeeper.labels (kind, agent, user_name, conversation, name, label, source) select 'note', agent, user_name, conversation, name, 'private', 'a file' from turnkeeper.notes")
	h.Exec("insert into turnkeeper.files (path, agent) values ('/r/a', 'clerk'), ('/r/b', 'clerk')")
	h.Exec(
		"insert into turnkeeper.labels (kind, name, label, source) select 'file', path, 'private', 'a mail' from turnkeeper.files")
	for change, want := range map[string]string{
		"delete from turnkeeper.files where path = '/r/a'":                                       "file /r/a",
		"delete from turnkeeper.turns where id = 13":                                             "call 13, turn 13",
		"delete from turnkeeper.messages where id = 11":                                          "message 11, reply 11",
		"delete from turnkeeper.summaries where up_to = 11":                                      "summary 11",
		"delete from turnkeeper.notes where name = 'm'":                                          "note clerk///m",
		"delete from turnkeeper.notes where user_name = 'anna'":                                  "note clerk/anna//n",
		"delete from turnkeeper.notes where agent = 'desk'":                                      "note desk///n",
		"delete from turnkeeper.notes where conversation = 'c'":                                  "note clerk//c/n",
		"select turnkeeper.write_note('clerk', '', '', 'n', 'another text', '{}', '{}')":         "note clerk///n",
		"select turnkeeper.write_note('clerk', 'anna', '', 'n', 'another text', '{}', '{}')":     "note clerk/anna//n",
		"select turnkeeper.write_note('clerk', '', 'c', 'n', 'another text', '{}', '{}')":        "note clerk//c/n",
		"select turnkeeper.write_note('clerk', '', '', 'n', 'x', '{private}', '{another page}')": "",
	} {
		t.Run(change, func(t *testing.T) {
			tx, err := h.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if _, err := tx.Exec(t.Context(),
				"create temporary table before on commit drop as select * from turnkeeper.labels"); err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), change); err != nil {
				t.Fatal(err)
			}
			var got string
			err = tx.QueryRow(t.Context(),
				`select coalesce(string_agg(kind || ' ' || case when kind = 'file' then name when agent <> '' then concat_ws('/', agent, user_name, conversation, name) else id::text end, ', ' order by kind), '')
				from before b where not exists (select from turnkeeper.labels l where (l.kind, l.id, l.agent, l.user_name, l.conversation, l.name)
					= (b.kind, b.id, b.agent, b.user_name, b.conversation, b.name))`).Scan(&got)
			if err != nil || got != want {
				t.Errorf("forgot %q, %v; want %q", got, err, want)
			}
		})
	}
}

// TestAMessageThatIsSentAgainKeepsItsLabels checks the messages of sub-agents that an operator retries.
func TestAMessageThatIsSentAgainKeepsItsLabels(t *testing.T) {
	h := newEnv(t)
	h.Submit("desk", "c", "x")
	d := h.Dispatch("w")[0]
	h.Exec(
		"insert into turnkeeper.labels (kind, id, label, source) select 'message', message_id, 'untrusted', 'a page' from turnkeeper.turns")
	h.Exec(
		"insert into turnkeeper.labels (kind, id, label, source) select 'call', message_id, 'private', 'a file' from turnkeeper.turns")
	h.Exec("insert into turnkeeper.labels (kind, id, label, source) values ('message', 1000, 'private', 'a file')")
	d.Finish(t, "done")
	h.Exec("insert into turnkeeper.messages (agent, conversation, lane, body) values ('desk', 'c', 'desk/c', 'x')")
	h.Exec("insert into turnkeeper.retries (message_id, retried_as) select min(id), max(id) from turnkeeper.messages")
	if n := storagetest.One[int](h,
		"select count(*) from turnkeeper.labels where id = (select max(id) from turnkeeper.messages)"); n != 1 {
		t.Errorf("the new message has %d labels, want 1", n)
	}
	if again := h.Dispatch("w")[0].Record.Labels.Before; len(again) != 1 || again[0].Source != "a page" {
		t.Errorf("labels of the new message: %+v", again)
	}
}
