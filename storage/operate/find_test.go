package operate_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// TestFinding searches messages and turns by each criterion, in pages of two. Each search reads at
// most three rows.
func TestFinding(t *testing.T) {
	h := newEnv(t)
	h.SetMaxSearched(3)
	h.Exec(`insert into turnkeeper.messages (agent, conversation, lane, body, state, closed_at, accepted_at, turn_id)
		select c[1], c[2], c[1] || '/' || c[2], c[3], c[4], case when c[4] <> 'waiting' then now() end, c[5]::timestamptz, nullif(c[6], '')::bigint
		from (values
			(array['desk', 'a', 'The order 4711 is late.',       'succeeded', '2026-01-01 10:00Z', '11']),
			(array['desk', 'b', 'late as always',                'failed',   '2026-01-01 11:00Z', '12']),
			(array['clerk', 'a', 'order 4711, again: LATE order', 'waiting', '2026-01-01 12:00Z', '']),
			(array['desk', 'a', 'is it late? grüße',             'succeeded', '2026-01-01 13:00Z', '14']),
			(array['desk', 'a', 'thank you',                     'waiting',  '2026-01-01 14:00Z', '']),
			(array['clerk', 'a', 'nothing',                      'waiting',  '2026-01-01 15:00Z', ''])) v (c)`)
	h.Exec(
		`insert into turnkeeper.turns (id, message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token, created_at, ended_at, stop_reason, error_class)
		select m.turn_id, m.id, 1, m.agent, m.conversation, m.lane, 'message', repeat('a', 64), case m.state when 'failed' then 'failed' else 'succeeded' end, 1,
			m.accepted_at, m.accepted_at, 'none', case m.state when 'failed' then 'auth' end
		from turnkeeper.messages m where turn_id is not null`)
	at := func(hour int) time.Time { return time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC) }
	for _, c := range []struct {
		name            string
		search          operate.Search
		messages, turns string
	}{
		{"all", operate.Search{}, "6 5 4 3 2 1", "14 12 11"},
		{"agent", operate.Search{Page: operate.Page{Agent: "desk"}}, "5 4 2 1", "14 12 11"},
		{"conversation", operate.Search{Page: operate.Page{Agent: "desk"}, Conversation: "a"}, "5 4 1", "14 11"},
		{"another state of both", operate.Search{Page: operate.Page{State: "failed"}}, "2", "12"},
		{"state of both", operate.Search{Page: operate.Page{State: "succeeded"}}, "4 1", "14 11"},
		{"error class", operate.Search{ErrorClass: "auth"}, "2", "12"},
		{"a word", operate.Search{Words: "late"}, "4 3 2 1", "14 12 11"},
		{"words in any order", operate.Search{Words: "late order"}, "3 1", "11"},
		{"a phrase", operate.Search{Words: `"order 4711"`}, "3 1", "11"},
		{"without a word", operate.Search{Words: "late -always"}, "4 3 1", "14 11"},
		{"no ASCII", operate.Search{Words: "GRÜßE"}, "4", "14"},
		{"no word at all", operate.Search{Words: "!?"}, "", ""},
		{"a word of an agent", operate.Search{Page: operate.Page{Agent: "clerk"}, Words: "late"}, "3", ""},
		{"since", operate.Search{Since: at(13)}, "6 5 4", "14"},
		{"until", operate.Search{Until: at(12)}, "2 1", "12 11"},
		{"between", operate.Search{Since: at(11), Until: at(13)}, "3 2", "12"},
		{"a state and a time", operate.Search{Page: operate.Page{State: "waiting"}, Until: at(13)}, "3", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			messages := pages(t, c.search, func(s operate.Search) ([]waiting.Message, int64, error) {
				return h.FindMessages(t.Context(), s)
			})
			turns := pages(t, c.search, func(s operate.Search) ([]waiting.Turn, int64, error) {
				return h.FindTurns(t.Context(), s)
			})
			var got [2][]string
			for _, m := range messages {
				got[0] = append(got[0], fmt.Sprint(m.ID))
			}
			for _, turn := range turns {
				got[1] = append(got[1], fmt.Sprint(turn.ID))
			}
			if m, turns := strings.Join(got[0], " "), strings.Join(got[1], " "); m != c.messages || turns != c.turns {
				t.Errorf("found the messages %q and turns %q, want %q and %q", m, turns, c.messages, c.turns)
			}
		})
	}
}

// pages returns all results of a search.
func pages[N any](t *testing.T, s operate.Search, find func(operate.Search) ([]N, int64, error)) (all []N) {
	t.Helper()
	s.Limit = 2
	for {
		found, next, err := find(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
		if next == 0 {
			return all
		}
		if s.Cursor != 0 && next >= s.Cursor {
			t.Fatalf("after %d comes %d", s.Cursor, next)
		}
		s.Cursor = next
	}
}

// TestTranscripts reads a conversation with a message that was answered, one whose turn runs, and one
// that waits.
func TestTranscripts(t *testing.T) {
	h := newEnv(t)
	for _, body := range []string{"first", "second", "third"} {
		h.Submit("desk", "a", body)
	}
	asks := func(name string) turnlog.Entry {
		r := storagetest.Round(1, turnkeeper.EffectNone)
		r.Calls[0].Name = name
		return turnlog.Entry{Round: r}
	}
	first := h.Dispatch("worker-1")[0]
	first.Write(t, asks("look"))
	first.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(storagetest.Key(1, 1), "",
		turnkeeper.CallSucceeded, "x")}})
	first.Finish(t, "done")
	for _, d := range h.Dispatch("worker-1") {
		d.Write(t, asks("search"))
	}
	exchanges, next, err := h.Transcript(t.Context(), operate.Page{Agent: "desk"}, "a")
	if err != nil || next != 0 {
		t.Fatal(next, err)
	}
	var got []string
	for _, x := range exchanges {
		said := fmt.Sprint(x.Message.Body, " ", x.Message.State)
		for _, c := range x.Calls {
			said += fmt.Sprint(" ", c.Name, " ", c.State)
		}
		if x.Reply != nil {
			said += ": " + x.Reply.Body
		}
		got = append(got, said)
	}
	if want := "third waiting; second running search planned; first succeeded look succeeded: done"; strings.Join(got,
		"; ") != want {
		t.Errorf("the conversation is %q, want %q", got, want)
	}
}

// TestWordsOfUnicode finds words next to characters that are not ASCII, ignoring case. The test is
// valid for the private Postgres too, because the same code creates it and the tests' server.
func TestWordsOfUnicode(t *testing.T) {
	h := newEnv(t)
	id := h.Submit("clerk", "", "He said “refund” — invoice—overdue… ПРИВЕТ Überweisung")
	for _, word := range []string{"refund", "invoice", "overdue", "привет", "überweisung"} {
		found, _, err := h.FindMessages(t.Context(), operate.Search{Words: word})
		if err != nil || len(found) != 1 || found[0].ID != id {
			t.Errorf("%s: %v, %v", word, found, err)
		}
	}
}

// TestSearchesUseIndexes explains each search over tables without statistics. The number of rows read depends on
// the search's limits, not on the size of the tables.
func TestSearchesUseIndexes(t *testing.T) {
	h := newFresh(t)
	h.NeverAnalyzed()
	const rows, looks = 3000, 50
	h.Exec(`insert into turnkeeper.messages (agent, user_name, conversation, lane, body, state, closed_at, accepted_at)
		select a, case when i % 50 = 0 then 'anna' else '' end, 'c' || i % 100, a, case when i % 200 = 0 then 'rare ' else '' end || 'common', 'succeeded', now(),
			now() - interval '1 day' + i * interval '1 second'
		from generate_series(1, $1::int) i, lateral (select case when i % 50 = 0 then 'clerk' else 'desk' end as a) a`, rows)
	h.Exec(
		`insert into turnkeeper.turns (id, message_id, attempt, agent, user_name, conversation, lane, trigger, definition_hash, state, token, ended_at, stop_reason, created_at)
		select id, id, 1, agent, user_name, conversation, lane, 'message', repeat('a', 64), 'succeeded', 1, now(), 'none', accepted_at from turnkeeper.messages`)
	ids := storagetest.One[string](h, "select array_agg(id)::text from turnkeeper.messages where body like 'rare%'")
	agent := map[string]string{"agent": "clerk", "conversation": "clerk"}
	user := map[string]string{"user": "anna", "conversation": "anna"}
	conversation := map[string]string{"conversation": "c50"}
	find := func(source, state, words, ids string) map[string]string {
		return map[string]string{
			"source": "'" + source + "'", "agent": "'" + agent[source] + "'", "user_name": "'" + user[source] + "'",
			"conversation": "'" + conversation[source] + "'", "state": "'" + state + "'", "words": "'" + words + "'",
			"ids":    "'" + ids + "'",
			"before": "2900", "from_id": "1", "scan": fmt.Sprint(looks), "skip": fmt.Sprint(looks - 1),
			"max_rows": "25", "error_class": "''",
			"since": "null", "until": "null", "at": "now() - interval '12 hours'",
		}
	}
	for name, c := range map[string]struct {
		queries []string
		values  map[string]string
		pages   int
	}{
		"all": {[]string{"FindMessages", "LastOfMessages", "FindTurns", "LastOfTurns"},
			find("all", "", "", "{}"), 20},
		"an agent": {[]string{"FindMessages", "LastOfMessages", "FindTurns", "LastOfTurns"},
			find("agent", "", "", "{}"), 150},
		"a user": {[]string{"FindMessages", "LastOfMessages", "FindTurns", "LastOfTurns"},
			find("user", "", "", "{}"), 150},
		"a conversation": {[]string{"FindMessages", "LastOfMessages", "FindTurns", "LastOfTurns"},
			find("conversation", "", "", "{}"), 150},
		"a rare state":    {[]string{"FindMessages", "FindTurns"}, find("agent", "failed", "", "{}"), 150},
		"a common word":   {[]string{"FindMessages"}, find("all", "", "common", "{}"), 20},
		"in turns":        {[]string{"FindTurns"}, find("all", "", "common", "{}"), 300},
		"those with rare": {[]string{"FindMessages", "FindTurns"}, find("ids", "", "rare", ids), 150},
		"a rare word":     {[]string{"MessagesWithWords"}, find("", "", "rare", ""), 60},
		"a time":          {[]string{"MessageNear", "TurnNear"}, find("", "", "", ""), 100},
	} {
		for _, name2 := range c.queries {
			plan := storagetest.Within(c.pages, func() storagetest.Plan { return h.explainUnknowing(name2, c.values) })
			scanned := 0.0
			plan.Walk(func(n storagetest.Plan) {
				if n.Type == "Seq Scan" && n.Rows*n.Loops > 0 {
					t.Errorf("%s, %s: a %s of %s", name, name2, n.Type, n.Relation)
				}
				scanned = max(scanned, n.Rows*n.Loops)
			})
			if scanned > 2*looks {
				t.Errorf("%s, %s: looks at %.0f rows", name, name2, scanned)
			}
			if got := plan.Pages(); got > c.pages {
				t.Errorf("%s, %s: looks at %d pages, %d are enough", name, name2, got, c.pages)
			} else {
				t.Logf("%s, %s: %d pages, %.0f rows", name, name2, got, scanned)
			}
		}
	}
}

var parameter = regexp.MustCompile(`sqlc\.narg\(\w+\)|@\w+\b`)

// explainUnknowing explains a query of find.sql with the generic plan, which does not depend on the
// values of the parameters.
func (h *env) explainUnknowing(name string, values map[string]string) storagetest.Plan {
	h.T.Helper()
	text, err := os.ReadFile("../queries/find.sql")
	if err != nil {
		h.T.Fatal(err)
	}
	_, sql, _ := strings.Cut(string(text), "-- name: "+name+" ")
	_, sql, _ = strings.Cut(sql, "\n")
	sql, _, _ = strings.Cut(sql, "-- name: ")
	types := map[string]string{
		"before": "bigint", "from_id": "bigint", "scan": "integer", "skip": "integer", "max_rows": "integer",
		"ids":   "bigint[]",
		"since": "timestamptz", "until": "timestamptz", "at": "timestamptz",
	}
	var order, kinds, given []string
	sql = parameter.ReplaceAllStringFunc(sql, func(p string) string {
		name := strings.Trim(strings.TrimPrefix(p, "sqlc.narg"), "(@)")
		i := slices.Index(order, name)
		if i < 0 {
			i = len(order)
			order, kinds, given = append(order, name), append(kinds, cmp.Or(types[name], "text")),
				append(given, values[name])
		}
		return fmt.Sprintf("$%d", i+1)
	})
	conn, err := h.Pool().Acquire(h.T.Context())
	if err != nil {
		h.T.Fatal(err)
	}
	defer conn.Release()
	var plan []byte
	_, err = conn.Exec(h.T.Context(), fmt.Sprintf("prepare asked (%s) as %s", strings.Join(kinds, ", "), sql))
	if err == nil {
		err = conn.QueryRow(h.T.Context(), fmt.Sprintf("explain (analyze, buffers, format json) execute asked (%s)",
			strings.Join(given, ", ")), pgx.QueryExecModeSimpleProtocol).Scan(&plan)
	}
	if err == nil {
		_, err = conn.Exec(h.T.Context(), "deallocate asked")
	}
	var plans []struct{ Plan storagetest.Plan }
	if err == nil {
		err = json.Unmarshal(plan, &plans)
	}
	if err != nil {
		h.T.Fatalf("%s: %v", name, err)
	}
	return plans[0].Plan
}

// TestSearchIgnoresCase searches for letters of several scripts in a database of locale C, which itself
// changes the case of A to Z only, among open and among closed messages.
func TestSearchIgnoresCase(t *testing.T) {
	for _, locale := range []string{"C", "C.UTF-8"} {
		h := storagetest.Open(t, storagetest.LocaleURL(t, locale))
		for _, state := range []string{"waiting", "cancelled"} {
			for _, body := range []string{"Grüße aus KÖLN", "ΑΘΉΝΑ", "Москва"} {
				h.Exec(`insert into turnkeeper.messages (agent, conversation, lane, body, state, closed_at)
					values ('clerk', 'main', 'clerk', $1, $2::text, case when $2::text <> 'waiting' then now() end)`, body, state)
			}
		}
		for words, want := range map[string]int{"köln": 2, "KÖLN": 2, "GRÜßE": 2, "αθήνα": 2, "МОСКВА": 2,
			"москва -köln": 2, "koln": 0} {
			found, _, err := h.FindMessages(t.Context(), operate.Search{Words: words})
			if err != nil || len(found) != want {
				t.Errorf("%s: %q finds %d messages, want %d (%v)", locale, words, len(found), want, err)
			}
		}
	}
}
