package operate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/outbox"
	"turnkeeper/internal/turnlog"
	"turnkeeper/policy"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// theUser is a name that occurs nowhere else. In the name of a lane it is written in another way.
const theUser = "anna/7731"

// traces lists the tables with a row that holds the user's name, and the number of these rows.
func traces(t *testing.T, h *env) string {
	t.Helper()
	var found []string
	tables := strings.Fields(storagetest.One[string](h,
		`select string_agg(c.oid::regclass::text, ' ' order by c.relname)
		from pg_class c where c.relnamespace = 'turnkeeper'::regnamespace and c.relkind = 'r'`))
	for _, table := range tables {
		sql := fmt.Sprintf(
			"select count(*) from %s x where position('anna/7731' in x::text) > 0 or position('anna%%2F7731' in x::text) > 0", table)
		if n := storagetest.One[int](h, sql); n > 0 {
			found = append(found, fmt.Sprintf("%s %d", strings.TrimPrefix(table, "turnkeeper."), n))
		}
	}
	if len(tables) < 40 {
		t.Errorf("only %d tables", len(tables))
	}
	return strings.Join(found, ", ")
}

// workOf runs a turn of a user with one of everything that bears the user's name.
func workOf(t *testing.T, h *env, agent, user string) {
	t.Helper()
	ctx := t.Context()
	if _, err := h.Enqueue(ctx, turnkeeper.Submission{Agent: agent, User: user, Conversation: "main", Body: "x",
		Key: "k"}); err != nil {
		t.Fatal(err)
	}
	d := h.Dispatch("w")[0]
	entry := turnlog.Entry{Round: storagetest.Round(1, turnkeeper.EffectOnce)}
	if len(d.Record.History) > 0 {
		entry.Summary = &turnlog.Summary{UpTo: d.Record.History[0].TurnID, Text: "a summary"}
	}
	d.Write(t, entry)
	owner := turnkeeper.ConversationKey{Agent: agent, User: user}
	if user == "" {
		owner.Name = "main"
	}
	if err := h.WriteNote(ctx, owner, "n", "text",
		[]policy.Mark{{Label: policy.Private, Source: "a file"}}); err != nil {
		t.Fatal(err)
	}
	d.Finish(t, "done")
	h.Exec("insert into turnkeeper.leases (lane, agent, failures) values ($1, $2, 1)", d.Grant.Lane, agent)
}

// TestAPurgeLeavesNoNameOfAUser purges a user from everything, and then looks into each table.
func TestAPurgeLeavesNoNameOfAUser(t *testing.T) {
	h := newEnv(t)
	if err := h.RegisterWebhook(t.Context(), outbox.Webhook{Name: "hook", Origin: "https://hook.example"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, agent := range []string{"clerk", "desk"} {
			workOf(t, h, agent, theUser)
			workOf(t, h, agent, "bert")
			h.Exec("update turnkeeper.messages set idempotency_key = null")
		}
	}
	const all = "labels 2, leases 1, messages 4, notes 2, replies 4, summaries 2, turns 4"
	count := func() int {
		return storagetest.One[int](h, "select count(*) from turnkeeper.messages where user_name = 'bert'")
	}
	if got := traces(t, h); !strings.Contains(got, "messages 4") || !strings.Contains(got, "leases 1") ||
		!strings.Contains(got, "ended_grants 2") {
		t.Fatalf("the name is in %s, want at least %s", got, all)
	}
	// Conversations without a message: of a token that is bound to her, of one that is not and names her, and another.
	h.Exec(
		`insert into turnkeeper.api_conversations (id, sent_by, user_name, metadata, items) values ('c1', 'token:1', $1, '{}', '[]'),
		('c2', 'token:2', '', jsonb_build_object('user', $1::text), '[]'), ('c3', 'token:2', '', jsonb_build_object($1::text, ''), '[]'),
		('c4', 'token:2', '', '{"user": "bert"}', '[]'), ('c5', 'token:2', 'bert', '{}', '[]')`, theUser)
	dry, err := h.Purge(t.Context(), operate.PurgeScope{User: theUser, Undelivered: true, Dry: true})
	if err != nil || dry.Messages != 4 || dry.Notes != 2 {
		t.Errorf("it would delete %+v, %v", dry, err)
	}
	for _, step := range []struct {
		scope operate.PurgeScope
		want  operate.Purged
	}{
		{operate.PurgeScope{Agent: "clerk", Conversation: "main"}, operate.Purged{}}, // of no user
		{operate.PurgeScope{Agent: "clerk", User: theUser, Conversation: "other"}, operate.Purged{}},
		{operate.PurgeScope{Agent: "clerk", User: theUser, Conversation: "main"},
			operate.Purged{Messages: 2, Turns: 2}},
		{operate.PurgeScope{Agent: "clerk", User: theUser}, operate.Purged{Notes: 1}},
		{operate.PurgeScope{User: theUser}, operate.Purged{Messages: 2, Turns: 2, Notes: 1}},
	} {
		step.scope.Undelivered = true
		if done, err := h.Purge(t.Context(), step.scope); err != nil || done != step.want {
			t.Errorf("%+v deleted %+v, %v, want %+v", step.scope, done, err, step.want)
		}
	}
	if got := traces(t, h); got != "" {
		t.Errorf("the name is still in %s", got)
	}
	if got := storagetest.One[string](h,
		"select string_agg(id, ' ' order by id) from turnkeeper.api_conversations"); got != "c4 c5" {
		t.Errorf("conversations %s are left", got)
	}
	if count() != 4 || storagetest.One[int](h, "select count(*) from turnkeeper.notes") != 2 {
		t.Error("the other user's are gone too")
	}
}

// TestAPurgeOfAConversationWithoutAUser deletes the notes of that conversation, whose key has its name, and leaves
// those of its namesakes.
func TestAPurgeOfAConversationWithoutAUser(t *testing.T) {
	h := newEnv(t)
	for _, user := range []string{"", "bert"} {
		workOf(t, h, "desk", user)
	}
	done, err := h.Purge(t.Context(), operate.PurgeScope{Agent: "desk", Conversation: "main"})
	if err != nil || done.Messages != 1 || done.Notes != 1 {
		t.Errorf("deleted %+v, %v", done, err)
	}
	if left := storagetest.One[string](h,
		"select string_agg(user_name, ',') from (select user_name from turnkeeper.notes union all select user_name from turnkeeper.messages) x"); left != "bert,bert" {
		t.Errorf("left are those of %s", left)
	}
}

// TestARetryKeepsItsUser retries a message that failed, and one that was cancelled.
func TestARetryKeepsItsUser(t *testing.T) {
	h := newEnv(t)
	id, err := h.Enqueue(t.Context(), turnkeeper.Submission{Agent: "desk", User: "anna", Body: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.CancelMessage(t.Context(), id, "a test"); err != nil {
		t.Fatal(err)
	}
	again, err := h.Retry(t.Context(), id, false)
	if err != nil || again.Message == id {
		t.Fatalf("the retry is %+v, %v", again, err)
	}
	if got := storagetest.One[string](h, "select user_name || ' ' || lane from turnkeeper.messages where id = $1",
		int64(again.Message)); got != "anna desk@anna/main" {
		t.Errorf("the retry is in %s", got)
	}
}

// TestWhichNotesAPurgeDeletes purges an agent with and without its notes, and by age, which notes do not have. The
// labels of an agent's files go with all of its notes.
func TestWhichNotesAPurgeDeletes(t *testing.T) {
	h := newEnv(t)
	for _, owner := range []turnkeeper.ConversationKey{
		{Agent: "desk"}, {Agent: "desk", User: "anna"}, {Agent: "desk", Name: "main"}, {Agent: "clerk", User: "anna"},
		{Agent: "clerk", Name: "main"},
	} {
		if err := h.WriteNote(t.Context(), owner, "n", "text", nil); err != nil {
			t.Fatal(err)
		}
	}
	marks := []policy.Mark{{Label: policy.Private, Source: "a mail"}}
	for _, agent := range []string{"desk", "clerk"} {
		if err := journal.NewFiles(h.Store.DB).WriteFile(t.Context(), agent, "/r/"+agent, marks, func() error {
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		scope operate.PurgeScope
		notes int
	}{
		{operate.PurgeScope{Notes: true}, 0},
		{operate.PurgeScope{Agent: "desk"}, 0},
		{operate.PurgeScope{User: "anna", OlderThan: time.Hour}, 0},
		{operate.PurgeScope{Agent: "desk", User: "anna", Conversation: "main"}, 0},
		{operate.PurgeScope{Agent: "clerk", Conversation: "other", Dry: true}, 0},
		{operate.PurgeScope{Agent: "clerk", Conversation: "other"}, 0},
		{operate.PurgeScope{Agent: "clerk", Conversation: "main", Dry: true}, 1},
		{operate.PurgeScope{Agent: "clerk", Conversation: "main"}, 1},
		{operate.PurgeScope{Agent: "desk", Notes: true, Dry: true}, 3},
		{operate.PurgeScope{Agent: "desk", Notes: true}, 3},
		{operate.PurgeScope{User: "anna"}, 1},
	} {
		if done, err := h.Purge(t.Context(), step.scope); err != nil || done.Notes != step.notes {
			t.Errorf("%+v deleted %d notes, %v, want %d", step.scope, done.Notes, err, step.notes)
		}
	}
	if left := storagetest.One[string](h, "select string_agg(path, ' ') from turnkeeper.files"); left != "/r/clerk" {
		t.Errorf("the labels of %s are left", left)
	}
}
