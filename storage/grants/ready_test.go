package grants_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"turnkeeper"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/testrun"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/storagetest"
)

// readyMessages returns the conversations whose first messages a tick would grant, once as its look
// finds them and once as a query for more does.
func (h *env) readyMessages(limit int, full ...string) (short, general string) {
	h.T.Helper()
	ask := func(ctx context.Context, tick *grants.Tick) string {
		ready, err := tick.ReadyMessages(ctx, limit, nil, full...)
		if err != nil {
			h.T.Fatal(err)
		}
		var names []string
		for _, r := range ready {
			names = append(names, r.Conversation)
		}
		return strings.Join(names, " ")
	}
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		short, general = ask(ctx, tick), ask(ctx, tick)
		return nil
	})
	return short, general
}

// TestWhichMessagesAreReady has a lane for each reason to grant a message or not.
func TestWhichMessagesAreReady(t *testing.T) {
	h := newEnv(t)
	for _, name := range []string{"held", "queued", "waits", "ended", "runs", "leased"} {
		h.Submit("desk", name, "x")
	}
	const noGrant = "update turnkeeper.leases set grant_id = null, turn_id = null, granted_at = null, lease_until = null where lane = $1"
	for _, d := range h.Dispatch("worker-1") {
		switch d.Record.Turn.Conversation {
		case "queued":
			h.Lose(d)
		case "waits":
			h.Exec("update turnkeeper.turns set state = 'waiting' where id = $1", d.Grant.TurnID)
			h.Exec(noGrant, d.Grant.Lane)
		case "runs": // only the turn has the grant, the lease does not
			h.Exec(noGrant, d.Grant.Lane)
		case "ended":
			d.Finish(t, "done")
		case "leased": // only the lease has the grant, the turn does not
			d.Finish(t, "done")
			h.Exec(
				`insert into turnkeeper.leases (lane, agent, grant_id, turn_id, granted_at, lease_until)
				values ($1, 'desk', gen_random_uuid(), $2, clock_timestamp(), clock_timestamp() + interval '1 h')`,
				d.Grant.Lane, d.Grant.TurnID)
		}
	}
	names := []string{
		"held", "queued", "waits", "ended", "retired", "free", "pauses", "paused", "paused-oddly", "later",
		"later-once", "running", "answered", "runs", "leased",
	}
	for i, name := range names {
		h.Submit("desk", name, "y")
		h.Exec(
			"update turnkeeper.messages set due_at = statement_timestamp() + ($2 - 60) * interval '1 second' where conversation = $1 and state = 'waiting'", name, i)
	}
	h.Register("aunt", true)
	h.Exec("update turnkeeper.messages set agent = 'aunt', lane = 'aunt/retired' where conversation = 'retired'")
	if err := h.RetireAgent(t.Context(), "aunt"); err != nil {
		t.Fatal(err)
	}
	lane := func(name, notBefore string) {
		h.Exec(
			"insert into turnkeeper.leases (lane, agent, not_before) select lane, agent, clock_timestamp() + $2::interval from turnkeeper.messages where conversation = $1", name, notBefore)
	}
	lane("pauses", "100 s")
	lane("paused", "-1 s")
	lane("paused-oddly", "1 h")
	h.Exec(
		"update turnkeeper.messages set due_at = clock_timestamp() + interval '1 h' where conversation in ('later', 'later-once')")
	// accepted before the clock was set back
	h.Exec("update turnkeeper.messages set accepted_at = due_at where conversation = 'later-once'")
	h.Exec("update turnkeeper.messages set state = 'running' where conversation = 'running'")
	h.Exec(
		"update turnkeeper.messages set state = 'succeeded', closed_at = clock_timestamp() where conversation = 'answered'")
	for limit, want := range map[int]string{100: "ended free paused paused-oddly later-once", 2: "ended free"} {
		short, general := h.readyMessages(limit)
		if short != want || general != want {
			t.Errorf("limit %d: %q by the short statement, %q by the general one, want %q", limit, short, general, want)
		}
	}
	// More messages that are due later than a Snapshot counts.
	h.Exec(
		"insert into turnkeeper.messages (agent, conversation, lane, body, due_at) select 'desk', 'later', 'desk/later', 'z', now() + interval '2 h' from generate_series(1, $1)", 2*granting.MaxWaiting)
	if short, general := h.readyMessages(100); short != general ||
		general != "ended free paused paused-oddly later-once" {
		t.Errorf("before a crowd that is due later: %q by the short statement, %q by the general one", short, general)
	}
	h.Exec("delete from turnkeeper.messages where body = 'z'")
	// Work that another turn gave to an agent that was retired later.
	h.Exec("insert into turnkeeper.agent_trees (root, max_depth, max_agents, tokens, calls) values (1, 1, 1, 0, 0)")
	h.Exec(`insert into turnkeeper.spawned_calls (turn_id, round, ordinal, message_id, agent, root, agents, deadline)
		select 1, 1, 1, id, agent, 1, array['desk', agent], now() + interval '1 h' from turnkeeper.messages where conversation = 'retired'`)
	if short, general := h.readyMessages(100); short != general ||
		general != "ended retired free paused paused-oddly later-once" {
		t.Errorf("with a retired sub-agent: %q by the short statement, %q by the general one", short, general)
	}
	h.Exec("delete from turnkeeper.spawned_calls")
	// Many older messages in a busy lane and in a lane that pauses.
	h.Exec(
		`insert into turnkeeper.messages (agent, conversation, lane, body, due_at) select m.agent, m.conversation, m.lane, 'z', now() - interval '1 h'
		from turnkeeper.messages m, generate_series(1, 10) where m.body = 'y' and m.conversation in ('held', 'pauses', 'queued', 'retired')`)
	for limit, want := range map[int]string{2: "ended free", 6: "ended free paused paused-oddly later-once"} {
		if _, general := h.readyMessages(limit); general != want {
			t.Errorf("limit %d, behind a crowd: %q, want %q", limit, general, want)
		}
	}
	// So many messages in one lane that the oldest are all from it.
	h.Submit("clerk", "desk", "y")
	for name, want := range map[string]string{
		"held": "ended", "queued": "ended", "waits": "ended", "pauses": "ended", "runs": "ended", "leased": "ended",
		"free": "free",
	} {
		h.Exec(
			"update turnkeeper.messages set due_at = now() - interval '1 day' where conversation = $1 and state = 'waiting'", name)
		h.Exec(
			`insert into turnkeeper.messages (agent, conversation, lane, body, due_at) select m.agent, m.conversation, m.lane, 'crowd', now() - interval '1 day'
			from turnkeeper.messages m, generate_series(1, 8) where m.body = 'y' and m.conversation = $1`, name)
		if _, general := h.readyMessages(1); general != want {
			t.Errorf("behind a crowd in the lane %q: %q, want %q", name, general, want)
		}
		both := map[string]string{"ended": "ended free", "free": "free ended"}[want]
		if _, general := h.readyMessages(2); general != both {
			t.Errorf("the first two behind a crowd in the lane %q: %q, want %q", name, general, both)
		}
		if _, general := h.readyMessages(1, "desk"); general != "desk" {
			t.Errorf("behind a crowd in the lane %q of an agent that is held: %q, want the clerk's message",
				name, general)
		}
		h.Exec("update turnkeeper.messages set state = 'cancelled', closed_at = clock_timestamp() where body = 'crowd'")
		h.Exec(`update turnkeeper.messages m set due_at = e.due_at + interval '1 us' from turnkeeper.messages e
			where m.conversation = $1 and m.state = 'waiting' and e.conversation = 'ended' and e.state = 'waiting'`, name)
	}
	if _, general := h.readyMessages(100, "desk"); general != "desk" {
		t.Errorf("while an agent is full: %q, want the clerk's message", general)
	}
	if _, general := h.readyMessages(100, "desk", "clerk"); general != "" {
		t.Errorf("while both agents are full: %q", general)
	}
	// Messages of a held agent are ready only if they have waited for the agent's give_up_after.
	h.Exec("update turnkeeper.agents set give_up_after = case name when 'desk' then interval '1 h' end")
	h.Exec(
		"insert into turnkeeper.model_health (model, down_since, until, failures) values ('test/m', now(), now(), 1)")
	h.Exec(
		`update turnkeeper.messages set accepted_at = now() - interval '2 h', due_at = now() - interval '2 h', failing_since = now() - interval '2 h'
		where body = 'y' and conversation in ('ended', 'free')`)
	for want, held := range map[string][]string{"ended! free! paused paused-oddly desk": nil,
		"ended! free! desk": {"desk"}, "ended! free!": {"clerk", "desk"}} {
		h.Tick(func(ctx context.Context, tick *grants.Tick) error {
			for range 2 {
				ready, err := tick.ReadyMessages(ctx, 100, held)
				if err != nil {
					return err
				}
				var got []string
				for _, r := range ready {
					if r.Conversation != "later-once" { // accepted in the future
						got = append(got, r.Conversation+map[bool]string{true: "!"}[r.Overdue])
					}
				}
				if strings.Join(got, " ") != want {
					t.Errorf("while %v are held, ready are %v, want %s", held, got, want)
				}
			}
			return nil
		})
	}
}

// TestWhichTurnsAreReady has an open turn for each reason to grant it or not.
func TestWhichTurnsAreReady(t *testing.T) {
	h := newEnv(t)
	names := []string{"free", "due", "later", "held", "pauses", "paused", "running", "ended", "waits"}
	for _, name := range names {
		h.Submit("desk", name, "x")
	}
	h.Submit("clerk", "clerk", "x")
	for _, d := range h.Dispatch("worker-1") {
		name := d.Record.Turn.Conversation
		switch name {
		case "running":
			continue
		case "ended":
			d.Finish(t, "done")
			continue
		case "waits":
			h.Exec("update turnkeeper.turns set state = 'waiting' where id = $1", d.Grant.TurnID)
			h.Exec(
				"update turnkeeper.leases set grant_id = null, turn_id = null, granted_at = null, lease_until = null where lane = $1", d.Grant.Lane)
			continue
		}
		h.Lose(d)
		set := func(due, notBefore string) {
			h.Exec("update turnkeeper.turns set due_at = statement_timestamp() + $2::interval where id = $1",
				d.Grant.TurnID, due)
			h.Exec(
				"insert into turnkeeper.leases (lane, agent, not_before) values ($1, 'desk', statement_timestamp() + $2::interval)",
				d.Grant.Lane, notBefore)
		}
		switch name {
		case "due":
			set("-1 s", "-1 h")
		case "later":
			set("1 h", "-1 h")
		case "pauses":
			set("-1 s", "100 s")
		case "paused":
			set("-1 s", "-1 s")
		case "held":
			h.Exec(
				`insert into turnkeeper.leases (lane, agent, grant_id, turn_id, granted_at, lease_until)
				values ($1, 'desk', gen_random_uuid(), $2, clock_timestamp(), clock_timestamp() + interval '1 h')`,
				d.Grant.Lane, d.Grant.TurnID)
		}
	}
	// Turns of a held agent are ready only if they have waited for the agent's give_up_after.
	h.Exec("update turnkeeper.agents set give_up_after = '1 h'")
	h.Exec(
		`update turnkeeper.messages set due_at = now() - interval '2 h', failing_since = now() - interval '30 min', failed_for = interval '30 min'
		where conversation in ('due', 'later')`)
	for want, held := range map[string][]string{
		"due! free paused clerk": nil, "due! clerk": {"desk"}, "due! free paused": {"clerk"}, "due!": {"clerk", "desk"},
	} {
		h.Tick(func(ctx context.Context, tick *grants.Tick) error {
			ready, err := tick.ReadyTurns(ctx, 100, held)
			var got []string
			for _, r := range ready {
				got = append(got, r.Conversation+map[bool]string{true: "!"}[r.Overdue])
			}
			if strings.Join(got, " ") != want {
				t.Errorf("while %v are held, ready are %v, want %s", held, got, want)
			}
			return err
		})
	}
	h.Exec("update turnkeeper.agents set give_up_after = null")
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		ready, err := tick.ReadyTurns(ctx, 100, []string{"desk"})
		if len(ready) != 1 || ready[0].Agent != "clerk" || ready[0].Overdue {
			t.Errorf("while nothing is ever given up, ready are %+v", ready)
		}
		return err
	})
}

// TestATurnForANewerWorkerIsOffered checks that a turn for a newer worker is offered to a live
// worker that has not handed it back.
func TestATurnForANewerWorkerIsOffered(t *testing.T) {
	testrun.Guard(t)
	for name, c := range map[string]struct {
		change string // SQL; changes the worker "newer"
		want   turnkeeper.WorkerID
	}{
		"it lives": {"", "newer"},
		"it has stopped": {"update turnkeeper.worker_heartbeat set stopped_at = now() where worker_id = 'newer'",
			"older"},
		"it takes none": {"update turnkeeper.worker_heartbeat set slots = 0 where worker_id = 'newer'", "older"},
		"it is silent": {
			"update turnkeeper.worker_heartbeat set beat_at = now() - interval '1 minute' where worker_id = 'newer'",
			"older"},
		"it has left it, too": {
			"insert into turnkeeper.ended_grants (lane, token, grant_id, turn_id, job_id, worker_id, granted_at, lease_until, ended_at, outcome) select lane, 1000, gen_random_uuid(), id, 1, 'newer', now(), now(), now(), 'handed_back' from turnkeeper.turns", "older"},
		"it lost it before": {
			"insert into turnkeeper.ended_grants (lane, token, grant_id, turn_id, job_id, worker_id, granted_at, lease_until, ended_at, outcome) select lane, 1000, gen_random_uuid(), id, 1, 'newer', now(), now(), now(), 'lost' from turnkeeper.turns", "newer"},
		"it left another": {
			"insert into turnkeeper.ended_grants (lane, token, grant_id, turn_id, job_id, worker_id, granted_at, lease_until, ended_at, outcome) select lane, 1000, gen_random_uuid(), id + 1, 1, 'newer', now(), now(), now(), 'handed_back' from turnkeeper.turns", "newer"},
		"nobody is there": {"delete from turnkeeper.worker_heartbeat", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			h.HeartBeat("older", 1, 15*time.Second)
			h.Exec("update turnkeeper.worker_heartbeat set started_at = started_at - interval '1 h'")
			h.HeartBeat("newer", 1, 15*time.Second)
			d := h.Turn("x")
			h.Lose(d)
			h.Exec("update turnkeeper.turns set due_at = clock_timestamp() + interval '1 h', error_class = $1",
				journal.ClassNewer)
			if c.change != "" {
				h.Exec(c.change)
			}
			h.Tick(func(ctx context.Context, tick *grants.Tick) error {
				ready, err := tick.ReadyTurns(ctx, 100, nil)
				if (len(ready) == 1) != (c.want != "") || len(ready) == 1 && ready[0].WorkerID != c.want {
					t.Errorf("ready are %+v, want one for %q", ready, c.want)
				}
				return err
			})
			h.Exec("update turnkeeper.turns set error_class = 'other'")
			h.Tick(func(ctx context.Context, tick *grants.Tick) error {
				ready, err := tick.ReadyTurns(ctx, 100, nil)
				if len(ready) != 0 {
					t.Errorf("a turn that is deferred for another reason is ready: %+v", ready)
				}
				return err
			})
		})
	}
}

// TestAGrantOfALaneThatIsHeld shows that granting a lane that another turn holds fails, and rolls
// back the other grants of the same batch.
func TestAGrantOfALaneThatIsHeld(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	h.Submit("clerk", "", "y")
	h.Submit("desk", "free", "z")
	before := h.Rows()
	ctx := t.Context()
	err := h.InTick(ctx, func(tick *grants.Tick) error {
		if _, _, err := tick.Snapshot(ctx, true); err != nil {
			return err
		}
		ready, err := tick.ReadyMessages(ctx, 100, nil)
		if err != nil {
			return err
		}
		held := ready[0]
		held.MessageID, held.Agent, held.Lane, held.Conversation = d.Record.Turn.MessageID+1, "clerk",
			d.Grant.Lane, "main"
		grants := []turnkeeper.GrantID{turnkeeper.GrantID(uuid.NewString()), turnkeeper.GrantID(uuid.NewString())}
		return tick.Grant(ctx, append(slices.Clone(ready), held), grants, storagetest.TurnJob, storagetest.TTL)
	})
	if err == nil || !strings.Contains(err.Error(), "1 of 2 lanes were free") {
		t.Errorf("error %v", err)
	}
	for _, row := range storagetest.Changed(before, h.Rows()) {
		t.Errorf("changed %s", row)
	}
}

// TestAGrantLeavesOthersAlone grants one of two queued turns, then one of two messages, and then the
// others together.
func TestAGrantLeavesOthersAlone(t *testing.T) {
	h := newEnv(t)
	for _, name := range []string{"a", "b"} {
		h.Submit("desk", name, "x")
	}
	for _, d := range h.Dispatch("worker-1") {
		h.Lose(d)
	}
	for _, name := range []string{"c", "d"} {
		h.Submit("desk", name, "x")
	}
	grant := func(pick func(context.Context, *grants.Tick) ([]granting.Candidate, error)) (rows []string) {
		before := h.Rows()
		h.Tick(func(ctx context.Context, tick *grants.Tick) error {
			ready, err := pick(ctx, tick)
			if err != nil {
				return err
			}
			var grants []turnkeeper.GrantID
			for range ready {
				grants = append(grants, turnkeeper.GrantID(uuid.NewString()))
			}
			return tick.Grant(ctx, ready, grants, storagetest.TurnJob, storagetest.TTL)
		})
		for _, name := range storagetest.Changed(before, h.Rows()) {
			kind, _, _ := strings.Cut(name, " ")
			rows = append(rows, kind)
		}
		return rows
	}
	turn := grant(func(ctx context.Context, tick *grants.Tick) ([]granting.Candidate, error) {
		return tick.ReadyTurns(ctx, 1, nil)
	})
	if want := []string{"grant", "job", "lane", "turn"}; !slices.Equal(turn, want) {
		t.Errorf("the grant of a turn changed %v, want %v", turn, want)
	}
	message := grant(func(ctx context.Context, tick *grants.Tick) ([]granting.Candidate, error) {
		return tick.ReadyMessages(ctx, 1, nil)
	})
	if want := []string{"grant", "job", "lane", "message", "turn"}; !slices.Equal(message, want) {
		t.Errorf("the grant of a message changed %v, want %v", message, want)
	}
	h.Dispatch("worker-1")
	h.Exec(
		"update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp() where grant_id is not null")
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		lost, err := tick.Lost(ctx, 100)
		for _, l := range lost {
			err = errors.Join(err, tick.Requeue(ctx, l))
		}
		return err
	})
	if n := len(h.Dispatch("worker-1")); n != 4 {
		t.Fatalf("%d turns are granted together, want 4", n)
	}
	wrong := storagetest.One[int](h,
		`select count(*) from turnkeeper.turns t full join turnkeeper.leases l on l.lane = t.lane full join turnkeeper.lease_log g on g.grant_id = l.grant_id
		where (t.token, t.grant_id, t.id, t.lease_until) is distinct from (l.token, l.grant_id, l.turn_id, l.lease_until)
		   or g.ended_at is null and (g.token, g.turn_id, g.lane, g.job_id) is distinct from (t.token, t.id, t.lane, t.job_id)`)
	if wrong != 0 {
		t.Errorf("%d turns, leases and entries of the log do not agree", wrong)
	}
}

// TestWhatAWorkerGivesBack has a grant for each reason not to give it back, and one without such a
// reason.
func TestWhatAWorkerGivesBack(t *testing.T) {
	testrun.Guard(t)
	const old = "interval '1 minute'"
	fetched := func(state, worker, since string) string {
		return fmt.Sprintf(
			"update turnkeeper.river_job set state = '%s', attempted_by = array['%s'], attempted_at = now() - %s, attempt = 1, finalized_at = case when '%s' in ('completed', 'cancelled', 'discarded') then now() end where id = $1",
			state, worker, since, state)
	}
	for name, c := range map[string]struct {
		bound        turnkeeper.WorkerID
		job          string
		turn         string
		working      bool
		jobs, grants int
	}{
		"fetched, not bound": {"", fetched("running", "w", old), "", false, 1, 0},
		"fetched by another": {"", fetched("running", "other", old), "", false, 0, 0},
		"fetched just now": {"", fetched("running", "w", "interval '1 second'"),
			"", false, 0, 0},
		"fetched, not bound, worked":              {"", fetched("running", "w", old), "", true, 0, 0},
		"not fetched":                             {"", fetched("available", "w", old), "", false, 0, 0},
		"not bound, its job over":                 {"", fetched("completed", "w", old), "", false, 0, 1},
		"not bound, another's is over":            {"", fetched("completed", "other", old), "", false, 0, 0},
		"bound, left":                             {"w", fetched("running", "w", old), "", false, 0, 1},
		"bound, left while the database was away": {"w", fetched("running", "w", old), "", false, 0, 1},
		"bound, worked":                           {"w", fetched("running", "w", old), "", true, 0, 0},
		"bound, fetched just now": {"w", fetched("running", "w", "interval '1 second'"),
			"", false, 0, 0},
		"bound, fetched by another": {"w", fetched("running", "other", old), "", false, 0, 1},
		"bound to another":          {"other", fetched("running", "w", old), "", false, 0, 0},
		"bound to another, over":    {"other", fetched("completed", "w", old), "", false, 0, 0},
		"of a grant that is another's": {"", fetched("running", "w", old),
			"update turnkeeper.leases set grant_id = gen_random_uuid() where turn_id = $1", false, 0, 0},
		"left, of another grant": {"w", fetched("running", "w", old),
			"update turnkeeper.leases set grant_id = gen_random_uuid() where turn_id = $1", false, 0, 0},
		"of a turn that waits": {"", fetched("running", "w", old),
			"update turnkeeper.turns set state = 'waiting' where id = $1", false, 0, 0},
		"left, of a turn that waits": {"w", fetched("running", "w", old),
			"update turnkeeper.turns set state = 'waiting' where id = $1", false, 0, 0},
		"left, and over already": {"w", fetched("running", "w", old),
			"update turnkeeper.leases set granted_at = granted_at - interval '1 h', lease_until = now() where turn_id = $1", false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnv(t)
			twin := h.TurnOf("desk", "w") // the worker runs this turn
			h.Exec(fetched("running", "w", old), twin.Grant.JobID)
			h.Submit("clerk", "", "x")
			d := h.Dispatch("")[0]
			if c.bound != "" {
				d = h.Take(d.Grant.TurnID, d.Grant.GrantID, d.Grant.JobID, c.bound)
			}
			h.Exec(c.job, d.Grant.JobID)
			if c.turn != "" {
				h.Exec(c.turn, d.Grant.TurnID)
			}
			working := []turnkeeper.GrantID{twin.Grant.GrantID}
			if c.working {
				working = append(working, d.Grant.GrantID)
			}
			var away []turnkeeper.GrantID
			log := 2 * c.grants // the turn, and so the grant log, has the end of a lease if its loss counts
			if name == "bound, left while the database was away" {
				away, log = append(away, d.Grant.GrantID), 0
			}
			before := h.Rows()
			got, err := h.GiveBack(t.Context(), "w", 10*time.Second, working, away)
			if err != nil || got.Jobs != c.jobs || got.Grants != c.grants {
				t.Errorf("gave back %+v, error %v; want %d jobs, %d grants", got, err, c.jobs, c.grants)
			}
			if n := len(storagetest.Changed(before, h.Rows())); n != c.jobs+c.grants+log {
				t.Errorf("%d rows changed", n)
			}
		})
	}
}

// TestJobsThatAreOver loses grants with jobs in each state. Jobs that River has ended, and jobs of
// other grants, do not change.
func TestJobsThatAreOver(t *testing.T) {
	h := newEnv(t)
	for state, want := range map[string]string{
		"available": "cancelled", "running": "cancelled", "completed": "completed", "cancelled": "cancelled",
		"discarded": "discarded",
	} {
		h.Submit("desk", state, "x")
		d := h.Dispatch("worker-1")[0]
		h.Exec(
			"update turnkeeper.river_job set state = $2::turnkeeper.river_job_state, finalized_at = case when $2 in ('completed', 'cancelled', 'discarded') then timestamptz '2026-01-01' end where id = $1", d.Grant.JobID, state)
		h.Lose(d)
		if got := storagetest.One[string](h, "select state::text from turnkeeper.river_job where id = $1",
			d.Grant.JobID); got != want {
			t.Errorf("a job that was %s is %s", state, got)
		}
		kept := storagetest.One[bool](h,
			"select finalized_at = timestamptz '2026-01-01' from turnkeeper.river_job where id = $1", d.Grant.JobID)
		if over := state != "available" && state != "running"; kept != over {
			t.Errorf("a job that was %s keeps its end: %t", state, kept)
		}
	}
}

// TestWhatWasDueAtTheLookIsNotWaitedFor makes one thing due at the time of the snapshot, and a moment
// later.
func TestWhatWasDueAtTheLookIsNotWaitedFor(t *testing.T) {
	h := newEnv(t)
	held := h.TurnOf("clerk", "worker-1")
	h.HeartBeat("w", 1, 0)
	h.Submit("desk", "free", "x")
	h.Lose(h.Dispatch("worker-1")[0])
	h.Exec("insert into turnkeeper.leases (lane, agent) values ('desk/free', 'desk')")
	h.Submit("clerk", "", "y")
	h.Exec(
		"insert into turnkeeper.schedules (agent, name, cron, time_zone, conversation, message, next_due) values ('clerk', 's', '@daily', 'UTC', 'main', 'x', null)")
	h.Exec(
		"insert into turnkeeper.model_health (model, down_since, until, failures) values ('m', now(), now() - interval '1 h', 1), ('up', null, null, 0)")
	h.Exec(
		`insert into turnkeeper.asks (turn_id, round, ordinal, kind, n, tool, arguments, args_hash, rule, reason, audience, hold, expires_at)
		values ($1, 1, 1, 'question', 1, 't', '{}', '', '', '', '{}', false, now() - interval '1 h')`, int64(held.Grant.TurnID))
	h.Exec(
		"insert into turnkeeper.set_aside (kind, id, next_try, code, error) values ('message', '7', now() - interval '1 h', '', '')")
	h.Exec("insert into turnkeeper.pinned_levels (agent, level, pinned_by) values ('desk', 'normal', 'ann')")
	h.Exec("update turnkeeper.leases set lease_until = lease_until + interval '1 day' where grant_id is not null")
	then := h.Time().Add(10 * time.Minute)
	for name, c := range map[string]struct{ due, never string }{
		"a schedule": {"update turnkeeper.schedules set next_due = $1",
			"update turnkeeper.schedules set next_due = null"},
		"a message": {"update turnkeeper.messages set due_at = $1 where state = 'waiting'",
			"update turnkeeper.messages set due_at = now() - interval '1 h' where state = 'waiting'"},
		"a pause": {"update turnkeeper.leases set not_before = $1 where grant_id is null",
			"update turnkeeper.leases set not_before = null"},
		"a message with a priority": {
			"update turnkeeper.messages set due_at = $1, priority = 100, queue_rank = turnkeeper.rank_of($1, 100) where state = 'waiting'",
			"update turnkeeper.messages set due_at = now() - interval '1 h', priority = 0, queue_rank = null where state = 'waiting'"},
		"a queued turn": {"update turnkeeper.turns set due_at = $1 where state = 'queued'",
			"update turnkeeper.turns set due_at = null"},
		"a turn that waits for a model": {
			"update turnkeeper.turns set waits_for = '{m}', due_at = $1 where state = 'running'",
			"update turnkeeper.turns set waits_for = null, due_at = null"},
		"an ask": {"update turnkeeper.asks set expires_at = $1",
			"update turnkeeper.asks set expires_at = now() - interval '1 h'"},
		"a row that is set aside": {"update turnkeeper.set_aside set next_try = $1",
			"update turnkeeper.set_aside set next_try = now() - interval '1 h'"},
		"a pinned level": {"update turnkeeper.pinned_levels set until = $1",
			"update turnkeeper.pinned_levels set until = null"},
		"a model": {"update turnkeeper.model_health set until = $1 where model = 'm'",
			"update turnkeeper.model_health set until = now() - interval '1 h' where model = 'm'"},
		"a lease": {"update turnkeeper.leases set lease_until = $1 where grant_id is not null",
			"update turnkeeper.leases set lease_until = now() + interval '1 day' where grant_id is not null"},
		"a silence": {
			"update turnkeeper.worker_heartbeat set takeover_after = '1 h', beat_at = $1::timestamptz - interval '1 h'",
			"update turnkeeper.worker_heartbeat set takeover_after = '0'"},
	} {
		h.Exec(c.due, then)
		for looked, want := range map[time.Time]time.Duration{then: time.Hour,
			then.Add(-time.Microsecond): 10 * time.Minute} {
			got, err := h.NextDue(t.Context(), looked)
			if want == time.Hour && got < 50*time.Minute || want == 10*time.Minute && got > want || err != nil {
				t.Errorf("%s, due %s after the look: next due in %s, error %v; want %s", name, then.Sub(looked),
					got, err, want)
			}
		}
		h.Exec(c.never)
	}
	held.Finish(t, "done")
}

// TestWhichRowsAreWaitedFor puts one row at a time into a table, with a time in 20 minutes. Only some of them are
// waited for.
func TestWhichRowsAreWaitedFor(t *testing.T) {
	h := newEnv(t)
	h.Submit("desk", "c", "x")
	turn := int64(h.Dispatch("w")[0].Grant.TurnID)
	h.Exec("update turnkeeper.leases set lease_until = lease_until + interval '1 day'")
	h.Exec(
		"create or replace function turnkeeper.next_day() returns timestamptz stable language sql return statement_timestamp() + interval '20 minutes'")
	const message = "insert into turnkeeper.messages (agent, conversation, lane, body, due_at, accepted_at, priority, held, state, closed_at) select 'clerk', 'main', 'clerk', 'x', "
	const soon, closed = "now() + interval '20 minutes'", ", 'failed', now()"
	aside := func(kind, id string) string {
		return fmt.Sprintf(
			"insert into turnkeeper.set_aside (kind, id, next_try, code, error) select '%s', '%s', %s, '', ''",
			kind, id, soon)
	}
	ask := func(state, until string) string {
		return fmt.Sprintf(
			`insert into turnkeeper.asks (turn_id, round, ordinal, kind, n, state, tool, arguments, args_hash, rule, reason, audience, hold, expires_at, closed_at)
			select %d, 1, 1, 'question', 1, '%s', 't', '{}', '', '', '', '{}', false, %s, case '%[2]s' when 'open' then null else now() end`, turn, state, until)
	}
	for name, c := range map[string]struct {
		insert string
		waited bool
	}{
		"a message":                 {message + soon + ", now(), 0, false, 'waiting', null", true},
		"a message with a priority": {message + soon + ", now(), 100, false, 'waiting', null", true},
		"a message whose place is later than its time": {
			message + "now() - interval '1 minute', now(), -1000, false, 'waiting', null", false},
		"a message that is held":                   {message + soon + ", now(), 0, true, 'waiting', null", false},
		"a message with a priority that is held":   {message + soon + ", now(), 100, true, 'waiting', null", false},
		"a message that is closed":                 {message + soon + ", now(), 0, false" + closed, false},
		"a message with a priority that is closed": {message + soon + ", now(), 100, false" + closed, false},
		"an ask":                       {ask("open", soon), true},
		"an ask that has expired":      {ask("open", "now() - interval '1 minute'"), false},
		"an ask that is closed":        {ask("withdrawn", soon), false},
		"a message that is set aside":  {aside("message", "7"), true},
		"a call that is set aside":     {aside("call", "7/1/1"), true},
		"a delivery that is set aside": {aside("delivery", "7"), false},
		"a purge that is set aside":    {aside("purge", "7"), false},
		"an agent that is set aside":   {aside("agent", "desk"), false},
		"a step that is set aside":     {aside("step", "look"), false},
		"a tick that is set aside":     {aside("tick", ""), false},
		"a pinned level": {
			"insert into turnkeeper.pinned_levels (agent, level, pinned_by, until) select 'desk', 'low', 'ann', " +
				soon, true},
		"a level that is pinned for good": {
			"insert into turnkeeper.pinned_levels (agent, level, pinned_by) select 'desk', 'low', 'ann'", false},
		"a model that is down": {
			"insert into turnkeeper.model_health (model, down_since, until, failures) select 'm', now(), " +
				soon + ", 1", true},
		"the day after one whose budget is low": {"update turnkeeper.agents set holds_below = 5 where name = 'clerk'",
			true},
	} {
		t.Run(name, func(t *testing.T) {
			h.Exec(c.insert)
			got, err := h.NextDue(t.Context(), h.Time())
			if waited := got <= 20*time.Minute; err != nil || waited != c.waited || got <= 0 {
				t.Errorf("next due in %s, error %v", got, err)
			}
			h.Exec("delete from turnkeeper.messages where agent = 'clerk'")
			for _, table := range []string{"set_aside", "pinned_levels", "model_health", "asks"} {
				h.Exec("delete from turnkeeper." + table)
			}
			h.Exec("update turnkeeper.agents set holds_below = null")
		})
	}
	h.Exec("update turnkeeper.turns set state = 'waiting', due_at = now() + interval '20 minutes' where id = $1", turn)
	for models, want := range map[string]bool{"null": false, "array['m']": true} {
		h.Exec("update turnkeeper.turns set waits_for = " + models)
		if got, err := h.NextDue(t.Context(), h.Time()); err != nil || (got <= 20*time.Minute) != want {
			t.Errorf("a turn that waits for %s: next due in %s, error %v", models, got, err)
		}
	}
}

// TestWhatIsWaitedForNext makes one thing at a time due later.
func TestWhatIsWaitedForNext(t *testing.T) {
	h := newEnv(t)
	near := func(want time.Duration, name string) {
		t.Helper()
		got, err := h.NextDue(t.Context(), h.Time())
		if err != nil || got > want || got < want-10*time.Minute {
			t.Errorf("%s: next due in %s, error %v; want %s", name, got, err, want)
		}
	}
	near(time.Hour, "nothing")
	h.Submit("clerk", "", "x")
	d := h.Turn("y")
	near(storagetest.TTL, "a lease")
	h.Exec("update turnkeeper.messages set due_at = now() + interval '2 minutes' where state = 'running'")
	near(storagetest.TTL, "a message that runs already")
	h.Exec("update turnkeeper.leases set lease_until = lease_until + interval '1 day'")
	near(24*time.Hour+storagetest.TTL, "a lease of days")
	h.Exec(
		"update turnkeeper.leases set granted_at = granted_at - interval '1 day', lease_until = now() - interval '1 minute'")
	near(time.Hour, "a lease that is over")
	h.Exec("update turnkeeper.turns set state = 'queued', due_at = now() + interval '30 minutes' where id = $1",
		d.Grant.TurnID)
	near(30*time.Minute, "a queued turn")
	h.Exec("update turnkeeper.turns set state = 'running' where id = $1", d.Grant.TurnID)
	h.Exec("update turnkeeper.turns set state = 'waiting' where id = $1", d.Grant.TurnID)
	near(time.Hour, "a waiting turn")
	h.Exec("update turnkeeper.turns set state = 'queued', due_at = now() - interval '1 second' where id = $1",
		d.Grant.TurnID)
	near(time.Hour, "a turn that is due")
	h.Exec("update turnkeeper.leases set not_before = now() + interval '20 minutes'")
	near(time.Hour, "a pause of a lane that is held")
	h.Exec("update turnkeeper.leases set grant_id = null, turn_id = null, granted_at = null, lease_until = null")
	near(20*time.Minute, "a pause of a lane")
	h.Exec("update turnkeeper.leases set not_before = now() - interval '1 minute'")
	near(time.Hour, "a pause that is over")
	h.HeartBeat("w", 1, 40*time.Minute)
	near(40*time.Minute, "a silence")
	h.Silence("w", time.Hour)
	near(time.Hour, "a silence that is over")
	h.Exec("update turnkeeper.worker_heartbeat set beat_at = now(), stopped_at = now()")
	near(time.Hour, "a worker that stopped")
	h.Exec(
		"update turnkeeper.worker_heartbeat set stopped_at = null, takeover_after = '0', beat_at = now() + interval '40 minutes'")
	near(time.Hour, "a worker that promised nothing")
	h.Exec(
		"insert into turnkeeper.schedules (agent, name, cron, time_zone, conversation, message, next_due) values ('clerk', 's', '@daily', 'UTC', 'main', 'x', now() + interval '10 minutes')")
	near(10*time.Minute, "a schedule")
	h.Exec("update turnkeeper.schedules set paused_at = now()")
	near(time.Hour, "a schedule that is paused")
	h.Exec("update turnkeeper.schedules set paused_at = null, active = false")
	near(time.Hour, "a schedule that is off")
	h.Exec("update turnkeeper.schedules set active = true, next_due = now() - interval '1 second'")
	near(time.Hour, "a schedule that is due")
	looked := h.Time()
	h.Exec("update turnkeeper.schedules set next_due = clock_timestamp()")
	if due, err := h.NextDue(t.Context(), looked); err != nil || due > 0 || due < -10*time.Minute {
		t.Errorf("a schedule that came due after the look: next due in %s, error %v", due, err)
	}
}
