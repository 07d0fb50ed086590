package storage_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// texts queries a column of texts as the role.
func (s *sender) texts(sql string, args ...any) []string {
	s.Helper()
	rows, err := s.conn.Query(s.Context(), sql, args...)
	if err != nil {
		s.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		s.Fatalf("%s: %v", sql, err)
	}
	return found
}

// reader is a connection of the role that docs/sql.md creates for readers.
func (h *env) reader() *sender {
	h.T.Helper()
	document, err := os.ReadFile("../docs/sql.md")
	if err != nil {
		h.T.Fatal(err)
	}
	rights := regexp.MustCompile("(?s)```sql\n(create role turnkeeper_reader.*?)```").FindSubmatch(document)
	u, err := url.Parse(h.URL)
	if rights == nil || err != nil {
		h.T.Fatalf("the document creates no role: %v", err)
	}
	role := strings.TrimPrefix(u.Path, "/") + "_reader" // roles belong to the whole server
	quoted := pgx.Identifier{role}.Sanitize()
	admin := func(ctx context.Context, sql string) {
		conn, err := pgx.Connect(ctx, h.URL)
		if err != nil {
			h.T.Fatal(err)
		}
		defer func() { _ = conn.Close(ctx) }()
		if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			h.T.Error(err)
		}
	}
	admin(h.T.Context(), strings.ReplaceAll(string(rights[1]), "turnkeeper_reader", quoted)+"; alter role "+quoted+
		" login password 'reader'")
	h.T.Cleanup(func() { admin(context.WithoutCancel(h.T.Context()), "drop owned by "+quoted+"; drop role "+quoted) })
	u.User = url.UserPassword(role, "reader")
	conn, err := pgx.Connect(h.T.Context(), u.String())
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() { _ = conn.Close(h.T.Context()) })
	return &sender{h.T.(*testing.T), conn, role}
}

// granted lists what a role may read and execute.
func (h *env) granted(role string) []string {
	return texts(h,
		`select relname::text from pg_class c where relnamespace = 'turnkeeper'::regnamespace and relkind in ('r', 'v',
		'm', 'p') and has_table_privilege($1, c.oid, 'select')
		union all select proname || '()' from pg_proc p where pronamespace = 'turnkeeper'::regnamespace and has_function_privilege($1,
		p.oid, 'execute') order by 1`, role)
}

// sent is a message of a sender, with its reply.
type sent struct {
	by, agent, user string
	id              int64
	reply           string // empty: none
}

// correspondence sends as two roles to two agents, as two users and none. All messages but the last of each role are
// answered.
func correspondence(h *env, senders map[string]*sender) (all []sent) {
	h.T.Helper()
	h.Register("clerk", true)
	for n := range 2 {
		for _, by := range []string{"app", "other"} {
			for _, agent := range []string{"clerk", "desk"} {
				for _, user := range []string{"", "anna", "bert"} {
					id := senders[by].one("select turnkeeper.enqueue($1, $2, $3, user_name => $4)", agent, "of "+by,
						fmt.Sprint(by, n), user)
					all = append(all, sent{by: by, agent: agent, user: user, id: id})
				}
			}
		}
	}
	for _, d := range h.Dispatch("worker-1") {
		d.Finish(h.T, "done")
	}
	for _, by := range []string{"app", "other"} {
		all = append(all, sent{by: by, agent: "desk",
			id: senders[by].one("select turnkeeper.enqueue('desk', 'waits')")})
	}
	for i := range all {
		all[i].reply = strings.Join(texts(h, "select id::text from turnkeeper.replies where message_id = $1",
			all[i].id), "")
	}
	slices.SortFunc(all, func(a, b sent) int {
		return strings.Compare(fmt.Sprintf("%9s", a.reply), fmt.Sprintf("%9s", b.reply))
	})
	return all
}

// repliesOf returns the ids of replies that a page must have.
func repliesOf(all []sent, by, agent, user string) (ids []string) {
	for _, m := range all {
		if m.reply != "" && (by == "" || m.by == by) && (agent == "" || m.agent == agent) &&
			(user == "" || m.user == user) {
			ids = append(ids, m.reply)
		}
	}
	return ids
}

// checkReplies reads replies by pages that end before, at and after the last one, of each agent and user.
func checkReplies(t *testing.T, s *sender, function, by string, all []sent) {
	t.Helper()
	for _, agent := range []string{"", "clerk", "desk", "nobody"} {
		for _, user := range []string{"", "anna", "carl"} {
			want := repliesOf(all, by, agent, user)
			for _, limit := range []int{1, len(want) - 1, len(want), len(want) + 1} {
				if limit < 1 || limit == 1 && len(want) > 6 {
					continue
				}
				var got []string
				for after := "0"; len(got) <= len(want); after = got[len(got)-1] {
					page := s.texts(fmt.Sprintf(function, after, limit), agent, user)
					if got = append(got, page...); len(page) < limit || len(got) == 0 {
						break
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s of %q and %q by %d: %q, want %q", function, agent, user, limit, got, want)
				}
			}
		}
	}
}

// TestWhatEachRoleSees compares all that the roles of the documents may read and execute with the rows of two senders,
// two agents and two users: a sender's are its own, a reader's are all. Another sender's message is answered like one
// that does not exist.
func TestWhatEachRoleSees(t *testing.T) {
	h := newEnv(t)
	senders, reader := map[string]*sender{"app": h.sender("_app"), "other": h.sender("_other")}, h.reader()
	all := correspondence(h, senders)
	checks := map[string]func(by string, s *sender){
		"my_messages": func(by string, s *sender) {
			var want []string
			for _, m := range all {
				if m.by == by {
					want = append(want, strings.Join([]string{itoa(m.id), m.agent, m.user, m.reply}, " "))
				}
			}
			slices.Sort(want)
			got := s.texts(
				`select concat_ws(' ', id, agent, user_name, coalesce(reply_id::text, '')) from turnkeeper.my_messages`)
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s sees the messages %q, want %q", by, got, want)
			}
		},
		"my_replies_after()": func(by string, s *sender) {
			checkReplies(t, s, `select id::text from turnkeeper.my_replies_after(%s, %d, $1, $2)`, by, all)
		},
		"enqueue()": nil, "enqueue_message()": nil, // correspondence sends
		"edit_message()": func(by string, s *sender) { checkOthers(t, s, by, "edit_message(%d, 'x')", all) },
		"drop_message()": func(by string, s *sender) { checkOthers(t, s, by, "drop_message(%d)", all) },
	}
	for by, s := range senders {
		for _, name := range h.granted(s.name) {
			check, known := checks[name]
			switch {
			case !known:
				t.Errorf("say here what a sender sees of %s", name)
			case check != nil:
				check(by, s)
			}
		}
	}
	for _, name := range h.granted(reader.name) {
		switch name {
		case "replies_after()":
			checkReplies(t, reader, `select id::text from turnkeeper.replies_after(%s, %d, $1, false, $2)`, "", all)
		case "settled_replies()", "first_turn()":
			got := reader.texts(
				`select turnkeeper.settled_replies(0, max(id)) || ' ' || turnkeeper.first_turn('2000-01-01')
				from turnkeeper.replies`)
			want := texts(h, "select max(r.id) || ' ' || min(t.id) from turnkeeper.replies r, turnkeeper.turns t")
			if !slices.Equal(got, want) {
				t.Errorf("the newest reply and the first turn are %q, want %q", got, want)
			}
		case "events_after()":
			checkEvents(t, h, reader)
		default:
			sql := "select to_jsonb(x)::text from turnkeeper." + pgx.Identifier{name}.Sanitize() + " x order by 1"
			if got, want := reader.texts(sql), texts(h, sql); !slices.Equal(got, want) {
				t.Errorf("a reader sees %d rows of %s, want %d", len(got), name, len(want))
			}
			if got := reader.refused("delete from turnkeeper." + name); got == "done" {
				t.Errorf("a reader may delete from %s", name)
			}
		}
	}
}

// checkOthers calls a function with the messages of another sender, and with one that does not exist.
func checkOthers(t *testing.T, s *sender, by, call string, all []sent) {
	t.Helper()
	say := func(id int64) string {
		return strings.ReplaceAll(s.refused("select turnkeeper."+fmt.Sprintf(call, id)),
			"message "+itoa(id), "message ID")
	}
	none := say(987654321)
	for _, m := range all {
		switch {
		case m.by != by:
			if got := say(m.id); got != none || got == "done" {
				t.Errorf("%s of another's message: %s, and of none: %s", call, got, none)
			}
		case m.reply != "":
			if got := say(m.id); !strings.HasPrefix(got, "TK008 ") {
				t.Errorf("%s of its own message that is answered: %s", call, got)
			}
		}
	}
}

// checkEvents checks that pages of the events of a turn have each event once, and none of another turn.
func checkEvents(t *testing.T, h *env, reader *sender) {
	t.Helper()
	h.Submit("desk", "events", "x")
	h.Submit("desk", "other events", "x")
	d := h.Dispatch("worker-2")
	for _, d := range d {
		d.Write(t, turnEvents(4))
	}
	turn := d[len(d)-1].Grant.TurnID
	want := []string{"1", "2", "3", "4"}
	for limit := 1; limit <= 5; limit++ {
		var got []string
		for after := "0"; len(got) <= len(want); after = got[len(got)-1] {
			page := reader.texts(fmt.Sprintf("select seq::text from turnkeeper.events_after(%d, %s, %d)", turn,
				after, limit))
			if got = append(got, page...); len(page) < limit {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the events by %d are %q, want %q", limit, got, want)
		}
	}
}

func turnEvents(n int) turnlog.Entry {
	return turnlog.Entry{Events: storagetest.Events(slices.Repeat([]turnkeeper.EventType{turnkeeper.EventNotice},
		n)...)}
}
