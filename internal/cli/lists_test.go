package cli_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"turnkeeper/internal/cli/turnctl"
	"turnkeeper/internal/outbox"
	"turnkeeper/storage/storagetest"
)

// A listed is a row that a list shows.
type listed struct{ Name, Agent, User, State string }

// A listing is a command that lists rows.
type listing struct {
	rows    string // SQL: name, agent, user and state of all rows, in order
	field   string // of the name, in JSON; empty: id
	enum    string // of the states, in the description of the API; empty: no filter by state
	byUser  bool   // it has --user
	byAgent bool   // it has --agent
	before  bool   // it has --before
	items   string // of the object that has the list, in JSON; empty: it is the list
	other   string // why its rows are not compared; empty: they are
}

// listings has all commands with --limit.
var listings = map[string]listing{
	"inbox": {
		rows: "select id::text, agent, user_name, state from turnkeeper.messages x order by x.id desc",
		enum: "MessageState", byUser: true, byAgent: true, before: true,
	},
	"turns": {
		rows: "select id::text, agent, user_name, state from turnkeeper.turns x order by x.id desc",
		enum: "TurnState", byUser: true, byAgent: true, before: true,
	},
	"outbox": {
		rows:   "select id::text, agent, user_name, '' from turnkeeper.replies x order by x.id desc",
		byUser: true, byAgent: true, before: true,
	},
	"asks --state all": {
		rows: `select a.id::text, t.agent, t.user_name, a.state
			from turnkeeper.asks a join turnkeeper.turns t on t.id = a.turn_id order by a.id desc`,
		enum: "AskState", byUser: true, byAgent: true, before: true,
	},
	"lanes": {
		rows: `select lane, agent, '', '' from (select lane, agent from turnkeeper.leases
			union select lane, agent from turnkeeper.messages where state = 'waiting' and not held
			union select lane, agent from turnkeeper.turns where ended_at is null) l order by lane`,
		field: "lane", byAgent: true,
	},
	"webhooks show hook": {
		rows: `select d.id::text, r.agent, r.user_name, d.state from turnkeeper.webhook_deliveries d join turnkeeper.replies r on r.id
			= d.reply_id order by d.id desc`,
		enum: "DeliveryState", byUser: true, byAgent: true, before: true, items: "deliveries",
	},
	"top": {other: "it shows running turns until it is stopped"},
}

// TestEveryCommandWithPagesIsListed compares the table with the commands that have --limit.
func TestEveryCommandWithPagesIsListed(t *testing.T) {
	var want, have []string
	for _, section := range regexp.MustCompile(`(?m)^## turnctl `).Split(turnctl.Reference(), -1)[1:] {
		if name, _, _ := strings.Cut(section, "\n"); regexp.MustCompile(`(?m)^ +--limit int`).MatchString(section) {
			want = append(want, name)
		}
	}
	for command := range listings {
		name, _, _ := strings.Cut(command, " --")
		have = append(have, strings.TrimSuffix(name, " hook"))
	}
	if slices.Sort(want); !slices.Equal(slices.Sorted(slices.Values(have)), want) {
		t.Errorf("the commands with pages are %q, want %q", have, want)
	}
}

// populate adds messages, turns, asks, replies, deliveries and lanes of two agents and two users and none, in each
// state.
func populate(t *testing.T, db *storagetest.DB) {
	t.Helper()
	if err := db.RegisterWebhook(t.Context(), outbox.Webhook{Name: "hook",
		Origin: "https://hook.example"}); err != nil {
		t.Fatal(err)
	}
	db.Exec(`with s (state, message) as (values ('queued', 'running'), ('running', 'running'), ('waiting', 'running'),
		('succeeded', 'succeeded'), ('degraded', 'degraded'),
			('failed', 'failed'), ('cancelled', 'cancelled'), (null, 'waiting')),
		m as (insert into turnkeeper.messages (agent, user_name, conversation, lane, body, state, closed_at)
			select a, u, coalesce(s.state, 'none'), turnkeeper.lane_of(a, u, coalesce(s.state, 'none'), true), 'hello', s.message,
				case when s.message not in ('waiting', 'running') then now() end
			from s, unnest(array['echo', 'watcher']) a, unnest(array['', 'anna', 'bert']) u returning *)
		insert into turnkeeper.turns (message_id, attempt, agent, user_name, conversation, lane, trigger, definition_hash, state,
		token, grant_id, lease_until, ended_at, stop_reason)
		select id, 1, agent, user_name, conversation, lane, 'message', repeat('a', 64), conversation, 1, gen_random_uuid(), now() +
		interval '1 h', closed_at,
			case when closed_at is not null then 'none' end
		from m where conversation <> 'none'`)
	db.Exec(
		"insert into turnkeeper.leases (lane, agent) select distinct lane, agent from turnkeeper.turns order by lane on conflict do nothing")
	db.Exec(
		`insert into turnkeeper.asks (turn_id, round, ordinal, kind, n, state, tool, arguments, args_hash, rule, reason,
		audience, hold, expires_at, closed_at, answered_by, answer)
		select t.id, 1, 1, case s when 'answered' then 'question' else 'approve' end, n, s, 'pay', '{}', '', '', '', '{}', false,
		now() + interval '1 day',
			case when s <> 'open' then now() end, 'ann', case s when 'answered' then '1' end
		from turnkeeper.turns t, unnest(array['open', 'approved', 'denied', 'answered', 'expired', 'withdrawn']) with ordinality c (s,
		n) where t.state = 'waiting'`)
	db.Exec(
		`insert into turnkeeper.replies (message_id, turn_id, agent, user_name, conversation, outcome, stop_reason, body, calls, sent_by)
		select message_id, id, agent, user_name, conversation, state, 'none', 'done', '[]', 'role:x' from turnkeeper.turns where
		ended_at is not null on conflict do nothing`)
	db.Exec(`insert into turnkeeper.webhook_deliveries (reply_id, webhook)
		select id, 'hook' from turnkeeper.replies r where not exists (select from turnkeeper.webhook_deliveries d where d.reply_id = r.id)`)
	db.Exec(`update turnkeeper.webhook_deliveries d set state = s, due_at = null, first_at = now(), last_at = now()
		from (select x.id, (array['pending', 'delivered', 'dead'])[1 + x.id % 3] as s from turnkeeper.webhook_deliveries x) c where
		c.id = d.id and s <> 'pending'`)
}

// TestListsOfTheCommandLine compares each list, by each filter and by pages that end before and at its last row, with
// the rows of the database.
func TestListsOfTheCommandLine(t *testing.T) {
	env, db := somewhere(t)
	populate(t, db)
	described, err := os.ReadFile("../../httpapi/openapi.json") // a test of httpapi compares it with the constants
	if err != nil {
		t.Fatal(err)
	}
	for command, l := range listings {
		if l.other != "" {
			continue
		}
		c := listedBy{t, env, command, l, storagetest.List[listed](db, l.rows)}
		c.compare(nil)
		if l.byAgent {
			c.compare(map[string]string{"agent": "echo"})
		}
		if l.byUser {
			c.compare(map[string]string{"user": "anna"})
			c.compare(map[string]string{"user": "bert", "agent": "watcher"})
		}
		if l.enum != "" {
			states := regexp.MustCompile(`(?s)"` + l.enum + `": \{.*?"enum": \[(.*?)\]`).FindSubmatch(described)
			for _, state := range regexp.MustCompile(`"([a-z_]+)"`).FindAllSubmatch(states[1], -1) {
				c.compare(map[string]string{"state": string(state[1])})
			}
		}
		c.pages()
	}
}

// listedBy compares what a command lists with the rows of the database.
type listedBy struct {
	*testing.T
	env     map[string]string
	command string
	listing
	all []listed
}

func (c listedBy) names(flags ...string) (names []string) {
	c.Helper()
	args := append(append(strings.Fields(c.command), "-o", "json"), flags...)
	got := run(c.T, turnctl.Program(), c.env, "", args...)
	if got.code != 0 {
		c.Errorf("%q: %+v", args, got)
		return nil
	}
	items := func() []map[string]any {
		if c.items == "" {
			return decode[[]map[string]any](c.T, got)
		}
		var all []map[string]any
		for _, item := range decode[map[string]any](c.T, got)[c.items].([]any) {
			all = append(all, item.(map[string]any))
		}
		return all
	}
	field := c.field
	if field == "" {
		field = "id"
	}
	for _, item := range items() {
		names = append(names, fmt.Sprint(item[field]))
	}
	return names
}

func (c listedBy) want(filter map[string]string) (names []string) {
	for _, row := range c.all {
		if (filter["agent"] == "" || row.Agent == filter["agent"]) &&
			(filter["user"] == "" || row.User == filter["user"]) &&
			(filter["state"] == "" || row.State == filter["state"]) {
			names = append(names, row.Name)
		}
	}
	return names
}

func (c listedBy) compare(filter map[string]string) {
	c.Helper()
	flags := []string{"--limit", "100"}
	for name, value := range filter {
		flags = append(flags, "--"+name, value)
	}
	if got, want := c.names(flags...), c.want(filter); !slices.Equal(got, want) || len(want) == 0 {
		c.Errorf("%s %q lists %q, want %q", c.command, flags, got, want)
	}
}

// pages reads the rows of an agent by pages.
func (c listedBy) pages() {
	c.Helper()
	want := c.want(map[string]string{"agent": "echo"})
	n := len(want)
	for _, limit := range []int{n/2 + 1, n - 1, n} {
		var got []string
		last := ""
		for {
			flags := []string{"--agent", "echo", "--limit", fmt.Sprint(limit)}
			if last != "" {
				flags = append(flags, "--before", last)
			}
			page := c.names(flags...)
			if got = append(got, page...); len(page) < limit || !c.before {
				break
			}
			last = page[len(page)-1]
		}
		if first := want[:min(limit, n)]; !c.before && !slices.Equal(got, first) || c.before &&
			!slices.Equal(got, want) {
			c.Errorf("%s by %d lists %q, want %q", c.command, limit, got, want)
		}
	}
}
