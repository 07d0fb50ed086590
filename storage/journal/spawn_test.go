package journal_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/operate"
	"turnkeeper/storage/storagetest"
)

// spawn starts a planned call of effect keyed that gives work to an agent.
func (s scene) spawn(k turnkeeper.CallKey, agent, task string) turnkeeper.MessageID {
	s.T.Helper()
	return s.spawnIn(turnlog.TreeLimits{MaxDepth: 3, MaxAgents: 9}, k, agent, task, "")
}

func (s scene) spawnIn(limits turnlog.TreeLimits, k turnkeeper.CallKey, agent, task,
	trace string) turnkeeper.MessageID {
	s.T.Helper()
	message, err := s.NewMessage(s.T.Context())
	s.must(err)
	begun := storagetest.Start(k, s.nonce(k.Round, k.Ordinal), 1, turnkeeper.EffectKeyed)
	begun.Spawn = &turnlog.Spawn{
		Message: message, Agent: agent, Task: task, Root: s.Grant.TurnID, Limits: limits, Within: time.Hour,
		Agents: []string{s.Record.Turn.Agent, agent}, TraceParent: trace,
	}
	s.Write(s.T, turnlog.Entry{
		Starts: []turnlog.CallStart{begun}, Results: []turnlog.CallResult{storagetest.Result(k, begun.Nonce,
			turnkeeper.CallRunning, "not yet")},
	})
	return message
}

var spawnKeys = []turnkeeper.CallKey{storagetest.Key(1, 1), storagetest.Key(1, 2), storagetest.Key(2, 1),
	storagetest.Key(2, 2)}

// A family is a turn with the messages to its sub-agents, by call.
type family struct {
	scene
	messages map[turnkeeper.CallKey]turnkeeper.MessageID
	children map[turnkeeper.CallKey]*storagetest.Dispatch // the granted ones
}

// families returns two running turns of the desk. Four calls of each have given work to the clerk.
// other comes first in every table. The messages of the calls in later are not due yet; those of
// all other calls are granted.
func families(t *testing.T, later ...turnkeeper.CallKey) (h *env, it, other family) {
	t.Helper()
	h = newEnv(t)
	h.TurnOf("clerk", "worker-1").Finish(t, "done") // a turn without a parent
	h.Submit("desk", "other", "x")
	h.Submit("desk", "it", "x")
	both := make([]family, 2)
	for i, d := range h.Dispatch("worker-1") {
		f := family{scene{h, d}, map[turnkeeper.CallKey]turnkeeper.MessageID{},
			map[turnkeeper.CallKey]*storagetest.Dispatch{}}
		f.plans()
		for _, k := range spawnKeys {
			f.messages[k] = f.spawn(k, "clerk", "look it up")
			if slices.Contains(later, k) {
				h.Exec("update turnkeeper.messages set due_at = now() + interval '1 h' where id = $1", f.messages[k])
			}
		}
		both[i] = f
	}
	for _, d := range h.Dispatch("worker-2") {
		for _, f := range both {
			for k, message := range f.messages {
				if message == d.Record.Turn.MessageID {
					f.children[k] = d
				}
			}
		}
	}
	return h, both[1], both[0]
}

// changed returns the rows of the family's turn that do changes, and the number of other rows that it
// changes.
func (f family) changed(do func()) (own string, others int) {
	f.T.Helper()
	before := f.Rows()
	do()
	var names []string
	for _, row := range storagetest.Changed(before, f.Rows()) {
		name := f.short(row)
		if strings.HasSuffix(name, " of another") {
			others++
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", "), others
}

func (f family) settle(timely bool) (n int) {
	f.T.Helper()
	f.Tick(func(ctx context.Context, tick *grants.Tick) (err error) {
		n, err = tick.SettleSpawned(ctx, timely, 100)
		return err
	})
	return n
}

// spawned returns an expression over the spawned_calls row of a call, as text.
func (f family) spawned(k turnkeeper.CallKey, column string) string {
	f.T.Helper()
	return storagetest.One[string](f.env, "select coalesce(("+column+
		")::text, '') from turnkeeper.spawned_calls where turn_id = $1 and round = $2 and ordinal = $3", f.Grant.TurnID,
		k.Round, k.Ordinal)
}

// TestWhatMayBeGivenToAgents starts sub-agents up to each limit and beyond it. A refused call gets
// its result at once.
func TestWhatMayBeGivenToAgents(t *testing.T) {
	h := newEnv(t)
	if err := h.SetMaxMessageBytes(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	h.Submit("desk", "other", "x")
	h.Submit("desk", "it", "x")
	h.Exec(
		"update turnkeeper.messages set priority = id, trace_parent = 'trace-' || conversation, due_at = timestamptz '2026-01-01' + id * interval '1 h'")
	all := h.Dispatch("worker-1")
	other, it := scene{h, all[0]}, scene{h, all[1]}
	for _, s := range []scene{other, it} {
		s.plans()
		s.Write(t, turnlog.Entry{Round: storagetest.Round(3, turnkeeper.EffectKeyed, turnkeeper.EffectKeyed)})
	}
	for _, k := range spawnKeys {
		other.spawn(k, "clerk", "x")
	}
	limits := turnlog.TreeLimits{MaxDepth: 3, MaxAgents: 2}
	for _, c := range []struct {
		key                  turnkeeper.CallKey
		agent, trace         string
		bytes                int
		failure, traceParent string
	}{
		{storagetest.Key(1, 1), "nobody", "", 1, "unknown_agent", ""},
		{storagetest.Key(1, 2), "clerk", "", 1000, "", "trace-it"},
		{storagetest.Key(2, 1), "clerk", "", 1001, "task_too_long", ""},
		{storagetest.Key(2, 2), "desk", "below", 1, "", "below"},
		{storagetest.Key(3, 1), "clerk", "", 1, "max_tree_sub_agents", ""},
	} {
		before := h.Rows()
		message := it.spawnIn(limits, c.key, c.agent, strings.Repeat("x", c.bytes), c.trace)
		for _, row := range storagetest.Changed(before, h.Rows()) {
			if kind, id, _ := strings.Cut(row, " "); kind == "message" && id != fmt.Sprint(message) {
				t.Errorf("%s: %s changed", c.key, row)
			}
		}
		got := storagetest.One[string](h,
			`select concat_ws(' ', s.failure, a.state, s.ended_at is not null, s.notified_at is not null, s.message_id is not null)
			from turnkeeper.spawned_calls s join turnkeeper.awaited_calls a using (turn_id, round, ordinal)
			where turn_id = $1 and round = $2 and ordinal = $3`, it.Grant.TurnID, c.key.Round, c.key.Ordinal)
		want := "f f t"
		if c.failure != "" {
			want = c.failure + " failed t t f"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", c.key, got, want)
		}
		got = storagetest.One[string](h,
			`select coalesce((select concat_ws(' ', agent, lane = agent || '/' || conversation, length(body), priority, trace_parent, due_at at time zone 'UTC')
			from turnkeeper.messages where id = $1), '')`, message)
		want = ""
		if c.failure == "" {
			want = fmt.Sprintf("%s t %d 2 %s 2026-01-01 02:00:00", c.agent, c.bytes, c.traceParent)
		}
		if got != want {
			t.Errorf("%s: the message is %q, want %q", c.key, got, want)
		}
	}
}

// TestHowSubAgentsEnd ends the turns of sub-agents with each outcome. Only the call that spawned the
// sub-agent gets its result.
func TestHowSubAgentsEnd(t *testing.T) {
	h, it, other := families(t)
	for k, c := range map[turnkeeper.CallKey]struct {
		outcome turnlog.Outcome
		message turnkeeper.MessageState
		state   string
	}{
		storagetest.Key(1, 1): {turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone},
			turnkeeper.MessageSucceeded, "succeeded"},
		storagetest.Key(1, 2): {turnlog.Outcome{State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopMaxRounds},
			turnkeeper.MessageDegraded, "succeeded"},
		storagetest.Key(2, 1): {turnlog.Outcome{State: turnkeeper.TurnFailed,
			StopReason: turnkeeper.StopInferenceError}, turnkeeper.MessageFailed, "failed"},
		storagetest.Key(2, 2): {turnlog.Outcome{State: turnkeeper.TurnCancelled, StopReason: turnkeeper.StopCancelled},
			turnkeeper.MessageCancelled, "failed"},
	} {
		child := it.children[k]
		c.outcome.Reply = "reply " + k.String()
		var rings []string
		own, others := it.changed(func() {
			rings = h.Heard(func() {
				it.must(child.Append(t.Context(), turnlog.Entry{Outcome: &c.outcome},
					turnlog.Consequence{Message: c.message,
						Log: "finished"}))
			})
		})
		// the sub-agent's grant, job, lane, message, reply and turn
		if want := fmt.Sprintf("awaited %d.%d, spawned %[1]d.%d", k.Round, k.Ordinal); own != want || others != 6 {
			t.Errorf("%s: changed %s and %d others, want %s", c.outcome.State, own, others, want)
		}
		if got := strings.Join(rings, ", "); got != "inbox freed" {
			t.Errorf("%s: it rings %q", c.outcome.State, got)
		}
		got := it.spawned(k,
			"concat_ws(' ', child, outcome, stop, ended_at is not null, notified_at is not null, failure)")
		if want := fmt.Sprintf("%d %s %s t t", child.Grant.TurnID, c.outcome.State, c.outcome.StopReason); got != want {
			t.Errorf("it is on record as %s, want %s", got, want)
		}
		if got := storagetest.One[string](h,
			"select state from turnkeeper.awaited_calls where turn_id = $1 and round = $2 and ordinal = $3",
			it.Grant.TurnID, k.Round, k.Ordinal); got != c.state {
			t.Errorf("a sub-agent that %s: its call has %s, want %s", c.outcome.State, got, c.state)
		}
	}
	other.children[storagetest.Key(1, 2)].Finish(t, "reply of the other")
	got := storagetest.One[string](h,
		"select string_agg(coalesce(parent_turn_id, 0)::text, ' ' order by id) from turnkeeper.replies")
	if id := it.Grant.TurnID; got != fmt.Sprintf("0 %d %d %d %d %d", id, id, id, id, other.Grant.TurnID) {
		t.Errorf("replies are of the parents %s", got)
	}
	for f, keys := range map[*family][]turnkeeper.CallKey{&it: spawnKeys, &other: {storagetest.Key(1, 2)}} {
		arrived, err := f.Arrivals(t.Context())
		if err != nil || len(arrived) != len(keys) {
			t.Fatalf("arrived are %+v, error %v", arrived, err)
		}
		for _, a := range arrived {
			reply := "reply " + a.Key.String()
			if f == &other {
				reply = "reply of the other"
			}
			s := a.Spawned
			if s == nil || s.Reply != reply || !s.Replied || s.Open || s.Message != f.messages[a.Key] ||
				s.Turn != f.children[a.Key].Grant.TurnID || s.Agent != "clerk" {
				t.Errorf("of %s has arrived %+v", a.Key, s)
			}
		}
	}
}

// TestAParentThatIsLocked ends a sub-agent while the row of its parent's turn is locked. The end
// does not wait, and the next tick delivers the result.
func TestAParentThatIsLocked(t *testing.T) {
	h, it, _ := families(t)
	tx, err := h.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "select from turnkeeper.turns where id = $1 for update",
		it.Grant.TurnID); err != nil {
		t.Fatal(err)
	}
	k := storagetest.Key(2, 1)
	own, _ := it.changed(func() {
		if rings := h.Heard(func() {
			it.children[k].Finish(t, "done")
		}); strings.Join(rings, ", ") != "inbox, inbox freed" {
			t.Errorf("it rings %q", rings)
		}
	})
	if own != "spawned 2.1" || it.spawned(k, "notified_at") != "" {
		t.Errorf("changed %s", own)
	}
	h.Exec("update turnkeeper.spawned_calls set deadline = now() where ended_at is not null")
	if own, others := it.changed(func() {
		if n := it.settle(true); n != 0 {
			t.Errorf("%d are settled", n)
		}
	}); own != "" || others != 0 {
		t.Errorf("while it is locked, a tick changed %s and %d others", own, others)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"awaited 2.1, spawned 2.1", ""} { // the second tick has nothing to do
		own, others := it.changed(func() {
			if n := it.settle(true); (n == 1) != (want != "") {
				t.Errorf("%d are settled", n)
			}
		})
		if own != want || others != 0 {
			t.Errorf("a tick changed %s and %d others, want %s", own, others, want)
		}
	}
}

// TestASubAgentIsOverdue checks that a call stops waiting for an overdue sub-agent, one of eight, if
// the clock can be trusted. A reply after that is too late.
func TestASubAgentIsOverdue(t *testing.T) {
	h, it, _ := families(t)
	k := storagetest.Key(2, 1)
	h.Exec(
		"update turnkeeper.spawned_calls set deadline = now() - interval '1 s' where turn_id = $1 and round = 2 and ordinal = 1", it.Grant.TurnID)
	for _, c := range []struct {
		timely bool
		want   string
	}{{false, ""}, {true, "awaited 2.1, spawned 2.1"}, {true, ""}} {
		own, others := it.changed(func() {
			if n := it.settle(c.timely); (n == 1) != (c.want != "") {
				t.Errorf("%d are settled", n)
			}
		})
		if own != c.want || others != 0 {
			t.Errorf("a tick changed %s and %d others, want %s", own, others, c.want)
		}
	}
	told := it.spawned(k, "notified_at")
	if failure := it.spawned(k, "failure"); failure != "timeout" || told == "" {
		t.Errorf("failure %q, told at %q", failure, told)
	}
	if arrived, err := it.Arrivals(t.Context()); err != nil || len(arrived) != 1 || arrived[0].Spawned == nil ||
		!arrived[0].Spawned.Open ||
		arrived[0].Spawned.Turn != it.children[k].Grant.TurnID || arrived[0].Spawned.Message != it.messages[k] {
		t.Errorf("of one that runs still has arrived %+v, error %v", arrived, err)
	}
	if own, _ := it.changed(func() { it.children[k].Finish(t, "late") }); own != "spawned 2.1" {
		t.Errorf("a late reply changed %s", own)
	}
	if at := it.spawned(k, "notified_at"); at != told {
		t.Errorf("told at %s, and again at %s", told, at)
	}
	if arrived, err := it.Arrivals(t.Context()); err != nil || len(arrived) != 1 ||
		arrived[0].State != turnkeeper.CallFailed {
		t.Errorf("arrived are %+v, error %v", arrived, err)
	}
}

// TestAReplyThatNobodyAwaits ends sub-agents whose calls have an answer or a result already. These
// do not change.
func TestAReplyThatNobodyAwaits(t *testing.T) {
	h, it, _ := families(t)
	const of = " where turn_id = $1 and round = 1 and ordinal = $2"
	h.Exec("update turnkeeper.awaited_calls set closed_at = opened_at"+of, it.Grant.TurnID, 1)
	h.Exec("update turnkeeper.awaited_calls set arrived_at = opened_at, state = 'failed'"+of, it.Grant.TurnID, 2)
	for _, k := range []turnkeeper.CallKey{storagetest.Key(1, 1), storagetest.Key(1, 2)} {
		own, others := it.changed(func() { it.children[k].Finish(t, "done") })
		if own != fmt.Sprintf("spawned %d.%d", k.Round, k.Ordinal) || others != 6 ||
			it.spawned(k, "notified_at") == "" {
			t.Errorf("changed %s and %d others", own, others)
		}
	}
	h.Exec(
		"update turnkeeper.spawned_calls set ended_at = timestamptz '2026-01-01' where turn_id = $1 and round = 2 and ordinal = 1", it.Grant.TurnID)
	if own, others := it.changed(func() {
		it.children[storagetest.Key(2, 1)].Finish(t, "done")
	}); own != "" || others != 6 {
		t.Errorf("what has ended changed: %s and %d others", own, others)
	}
}

// TestACallThatDropsItsSubAgent answers calls of a running turn. This requests the cancellation of
// the open turn of a sub-agent that has not replied. It does not affect a sub-agent that has
// replied, or one of another turn.
func TestACallThatDropsItsSubAgent(t *testing.T) {
	h, it, _ := families(t)
	k, replied := storagetest.Key(2, 1), storagetest.Key(1, 2)
	failed := turnlog.Outcome{State: turnkeeper.TurnFailed, StopReason: turnkeeper.StopInferenceError,
		Error: "no", Retry: true}
	it.must(it.children[k].Append(t.Context(), turnlog.Entry{Outcome: &failed},
		turnlog.Consequence{Message: turnkeeper.MessageWaiting, Log: "finished"}))
	h.Exec("update turnkeeper.leases set not_before = null")
	open := h.Dispatch("worker-2")[0]
	it.children[replied].Finish(t, "done")
	answer := func(k turnkeeper.CallKey) func() {
		return func() {
			it.Write(t, turnlog.Entry{Results: []turnlog.CallResult{storagetest.Result(k, it.nonce(k.Round, k.Ordinal),
				turnkeeper.CallSucceeded, "ok")}})
		}
	}
	for key, c := range map[turnkeeper.CallKey]struct {
		own, rings string
		others     int
	}{
		k:       {"awaited 2.1, call 2.1, spawned 2.1, turn", "cancels, inbox", 1},
		replied: {"awaited 1.2, call 1.2, turn", "", 0},
	} {
		var rings []string
		own, others := it.changed(func() { rings = h.Heard(answer(key)) })
		if own != c.own || others != c.others || strings.Join(rings, ", ") != c.rings {
			t.Errorf("the answer of %s changed %s and %d others, and rings %q; want %s, %d, %s", key, own, others,
				rings, c.own, c.others, c.rings)
		}
	}
	reason := storagetest.One[string](h, "select reason from turnkeeper.requested_ends where turn_id = $1",
		open.Grant.TurnID)
	if want := fmt.Sprintf("its parent, turn %d, no longer waits for it", it.Grant.TurnID); reason != want {
		t.Errorf("it is to be cancelled because %q", reason)
	}
	if n := storagetest.One[int](h, "select count(*) from turnkeeper.requested_ends"); n != 1 {
		t.Errorf("%d turns are to be cancelled", n)
	}
}

// TestSubAgentsThatNobodyWaitsFor cancels a turn whose sub-agents are in different states. The next
// tick closes those that no worker runs, and requests the cancellation of those that run. Another
// family in the same states does not change.
func TestSubAgentsThatNobodyWaitsFor(t *testing.T) {
	waiting, running, queued, waits := storagetest.Key(1, 1), storagetest.Key(1, 2), storagetest.Key(2, 1),
		storagetest.Key(2, 2)
	h, it, other := families(t, waiting)
	for _, f := range []family{other, it} {
		h.Lose(f.children[queued])
		d := f.children[waits]
		h.Exec("update turnkeeper.turns set state = 'waiting' where id = $1", d.Grant.TurnID)
		h.Exec(
			"update turnkeeper.leases set grant_id = null, turn_id = null, granted_at = null, lease_until = null where lane = $1", d.Grant.Lane)
	}
	h.Lose(it.Dispatch)
	h.AskCancel(it.Dispatch)
	// as if the turn had been granted after the request
	h.Exec("delete from turnkeeper.requested_ends where turn_id = $1", it.children[running].Grant.TurnID)
	states := func(f family) string {
		return storagetest.One[string](h,
			`select string_agg(concat_ws(' ', m.state, t.state, c.turn_id is not null), ', ' order by s.round, s.ordinal) from turnkeeper.spawned_calls s
			join turnkeeper.messages m on m.id = s.message_id left join turnkeeper.turns t on t.id = m.turn_id left join turnkeeper.requested_ends c on c.turn_id = t.id
			where s.turn_id = $1`, f.Grant.TurnID)
	}
	before := states(other)
	for n, want := range []int{3, 0} { // the second tick has nothing to do
		var rings []string
		_, changed := other.changed(func() {
			rings = h.Heard(func() {
				if got := it.settle(false); got != want {
					t.Errorf("%d are settled, want %d", got, want)
				}
			})
		})
		if told := slices.Contains(rings, "cancels"); told != (n == 0) || (changed > 0) != (n == 0) {
			t.Errorf("look %d: it rings %q, and changed %d rows", n, rings, changed)
		}
	}
	if got, want := states(it),
		"cancelled cancelled t, running running t, cancelled cancelled t, cancelled cancelled t"; got != want {
		t.Errorf("sub-agents are %s, want %s", got, want)
	}
	if got, want := states(other), "waiting f, running running f, running queued f, running waiting f"; got != want ||
		got != before {
		t.Errorf("those of the other are %s, were %s, want %s", got, before, want)
	}
}

// TestALostParentsCalls closes a turn that was lost too often. Its calls whose sub-agents have not
// replied end, too.
func TestALostParentsCalls(t *testing.T) {
	h, it, _ := families(t)
	it.Write(t, turnlog.Entry{Round: storagetest.Round(3, turnkeeper.EffectOnce),
		Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(3, 1), "third", 1, turnkeeper.EffectOnce)}})
	it.Write(t, turnlog.Entry{Results: []turnlog.CallResult{
		// in the background
		storagetest.Result(storagetest.Key(1, 1), it.nonce(1, 1), turnkeeper.CallSucceeded, "ok"),
		storagetest.Result(storagetest.Key(3, 1), "third", turnkeeper.CallRunning, "handle"),
	}})
	own, others := it.changed(func() {
		h.Tick(func(ctx context.Context, tick *grants.Tick) error {
			return tick.SettleCalls(ctx, it.Grant.TurnID, "unknown", "not run", "not run", "ended")
		})
	})
	// requests to cancel
	if want :=
		"awaited 1.2, awaited 2.1, awaited 2.2, call 1.2, call 2.1, call 2.2, call 3.1, spawned 1.2, spawned 2.1, spawned 2.2, turn"; own != want || others != 3 {
		t.Errorf("changed %s and %d others, want %s", own, others, want)
	}
	for k, want := range map[turnkeeper.CallKey]string{storagetest.Key(1, 1): "succeeded ok",
		storagetest.Key(1, 2): "cancelled ended", storagetest.Key(2, 2): "cancelled ended",
		storagetest.Key(3, 1): "unknown unknown"} {
		if c := h.Call(it.Grant.TurnID, k); fmt.Sprint(c.State, " ", c.Preview) != want {
			t.Errorf("call %s is %s %s, want %s", k, c.State, c.Preview, want)
		}
	}
}

// TestFamiliesThatArePurged purges a parent before its sub-agents, and a sub-agent before its
// parent.
func TestFamiliesThatArePurged(t *testing.T) {
	h, it, other := families(t)
	h.Exec(
		"insert into turnkeeper.spend (scope, period) values ('tree:' || $1::bigint, ''), ('tree:' || $2::bigint, '')",
		it.Grant.TurnID, other.Grant.TurnID)
	purge := func(agent string, turn turnkeeper.TurnID) {
		conversation := storagetest.One[string](h, "select conversation from turnkeeper.turns where id = $1", turn)
		if done, err := h.Purge(t.Context(), operate.PurgeScope{Agent: agent,
			Conversation: conversation}); err != nil || done.Turns != 1 {
			t.Fatalf("purged are %+v, error %v", done, err)
		}
	}
	kept := func() string {
		return storagetest.One[string](h,
			`select concat_ws('; ', (select string_agg(format('%s %s.%s', case turn_id when $1 then 'it' else 'other' end, round, ordinal), ', ' order by turn_id desc, round, ordinal) from turnkeeper.spawned_calls),
			(select string_agg(case root when $1 then 'it' else 'other' end, ' ' order by root desc) from turnkeeper.agent_trees),
			(select string_agg(case scope when 'tree:' || $1 then 'it' else 'other' end, ' ' order by scope desc) from turnkeeper.spend where scope like 'tree:%'))`, it.Grant.TurnID)
	}
	silent := turnlog.Outcome{State: turnkeeper.TurnSucceeded, StopReason: turnkeeper.StopNone}
	for _, f := range []family{it, other} { // a sub-agent that has ended without a reply
		it.must(f.children[storagetest.Key(2, 1)].Append(t.Context(), turnlog.Entry{Outcome: &silent},
			storagetest.Answered))
	}
	h.Lose(it.Dispatch)
	h.AskCancel(it.Dispatch)
	purge("clerk", it.children[storagetest.Key(2, 1)].Grant.TurnID)
	h.Lose(other.Dispatch)
	h.AskCancel(other.Dispatch)
	it.settle(false)
	if it.spawned(storagetest.Key(2, 1), "ended_at") == "" || other.spawned(storagetest.Key(2, 1), "ended_at") != "" {
		t.Error("a sub-agent whose records are gone has ended, and no other")
	}
	ended := it.spawned(storagetest.Key(2, 1), "ended_at")
	it.settle(false)
	if again := it.spawned(storagetest.Key(2, 1), "ended_at"); again != ended {
		t.Errorf("it has ended at %s, and again at %s", ended, again)
	}
	other.children[storagetest.Key(1, 1)].Finish(t, "done")
	const others = "other 1.1, other 1.2, other 2.1, other 2.2"
	purge("desk", it.Grant.TurnID)
	if got, want := kept(), "it 1.1, it 1.2, it 2.2, "+others+"; it other; other"; got != want {
		t.Errorf("with a parent is gone: kept are %s, want %s", got, want)
	}
	if rings := h.Heard(func() {
		it.children[storagetest.Key(1, 2)].Cancel(t)
	}); strings.Join(rings, ", ") != "inbox freed" {
		t.Errorf("it rings %q", rings)
	}
	if got, want := kept(), "it 1.1, it 2.2, "+others+"; it other; other"; got != want {
		t.Errorf("of a parent that is gone, a sub-agent has ended: kept are %s, want %s", got, want)
	}
	if at := other.spawned(storagetest.Key(1, 2), "ended_at"); at != "" {
		t.Errorf("that of another has ended at %s", at)
	}
	other.children[storagetest.Key(1, 2)].Finish(t, "done")
	other.children[storagetest.Key(2, 2)].Finish(t, "done")
	purge("clerk", other.children[storagetest.Key(2, 1)].Grant.TurnID)
	other.settle(false)
	purge("desk", other.Grant.TurnID)
	if got, want := kept(), "it 1.1, it 2.2; it"; got != want {
		t.Errorf("of a parent whose sub-agents have ended: kept are %s, want %s", got, want)
	}
}
