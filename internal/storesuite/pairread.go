package storesuite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/scheduler"
	"turnkeeper/tools"
)

// differs are the ends of paths of values that differ between stores, or with each query.
var differs = []string{
	".Now", ".QueryTime", ".Timeline", ".SeenTimeline", ".Restarted", // of the database itself
	".JobID",            // River's
	".SentBy",           // the role of the connection
	".Lanes", ".Levels", // may be set without need
	".Waiting", ".Left", // a store may leave out messages that a level holds
}

// read reads what a store has: everything, or of many messages and turns the first and the last ones.
func (c *side) read(everything bool) {
	messages, turns := c.Keeper().Rows()
	for _, id := range messages {
		c.name(id) // the n-th message has the name mn
	}
	if !everything {
		messages, turns = ends(messages), ends(turns)
	}
	for _, id := range messages {
		c.readMessage(id)
	}
	for _, id := range turns {
		c.readTurn(id)
	}
	parts, err := c.RequestParts(c.Context(), c.parts...)
	c.add("parts", parts)
	c.add("parts error", err)
	c.add("effects", slices.Sorted(slices.Values(c.Effects())))
	for _, agent := range pairAgents {
		calls, err := c.RecentCalls(c.Context(), agent, "tool", tools.Hash("tool", askArguments), 3*60*60*1e9)
		slices.SortStableFunc(calls, func(a, b turnlog.PastCall) int { // those that ended at one moment have no order
			return cmp.Or(cmp.Compare(a.Ago.Round(time.Minute), b.Ago.Round(time.Minute)),
				strings.Compare(fmt.Sprint(a.Succeeded), fmt.Sprint(b.Succeeded)))
		})
		c.add("recent calls of "+agent, calls)
		c.add("recent calls of "+agent+", error", err)
	}
	c.peek()
}

// readRecord reads what a worker gets of a turn. Of earlier turns and of the message, a store may return more than it
// needs.
func (c *side) readRecord(record *turnlog.Record) {
	r := *record
	r.Message.LastError = ""
	r.History = slices.Clone(r.History)
	for i := range r.History {
		r.History[i].Rounds = historyOf(r.History[i].Rounds)
	}
	r.Asks = slices.Clone(r.Asks)
	for i := range r.Asks {
		r.Asks[i].ClosedAt = time.Time{} // the suite cannot move it
	}
	if r.LastRun != nil {
		run := *r.LastRun
		run.Rounds, r.LastRun = historyOf(run.Rounds), &run
	}
	c.add("record", r)
}

// historyOf returns what the history of a conversation shows of rounds.
func historyOf(rounds []turnkeeper.Round) (all []turnkeeper.Round) {
	for _, r := range rounds {
		seen := turnkeeper.Round{Number: r.Number, Text: r.Text}
		for _, call := range r.Calls {
			seen.Calls = append(seen.Calls, turnkeeper.ToolCall{
				Key: call.Key, WireID: call.WireID, Name: call.Name, Arguments: call.Arguments, RunArgs: call.RunArgs,
				State: call.State, Shown: call.Shown,
				OutputID: call.OutputID,
			})
		}
		all = append(all, seen)
	}
	return all
}

// ends returns the first and the last of many rows.
func ends[T any](rows []T) []T {
	const some = 15
	if len(rows) <= 2*some {
		return rows
	}
	return slices.Concat(rows[:some], rows[len(rows)-some:])
}

func (c *side) readMessage(id turnkeeper.MessageID) {
	m := c.Message(id)
	name := c.name(id)
	if m.State == turnkeeper.MessageWaiting {
		m.Lane = "" // a store may move a message that is held out of the lane that it would block
	}
	c.add(name, m)
	reply, ok := c.Reply(id)
	c.add(name+" reply", reply)
	c.add(name+" replied", ok)
	if m.ClosedAt.IsZero() && !c.running(m) {
		blockers := slices.DeleteFunc(c.Blockers(id), func(r waiting.Reason) bool {
			row, _ := waiting.RowOf(r)
			return row.Everybody || r == waiting.WorkerSilent // which a store may add to explain lane_held
		})
		for i, r := range blockers {
			// what a turn itself waits for, which a store may tell apart
			if row, _ := waiting.RowOf(r); row.Parked != "" {
				blockers[i] = waiting.Deferred
			}
		}
		slices.Sort(blockers)
		c.add(name+" blockers", slices.Compact(blockers)) // a store may give a reason for each turn that is in the way
	}
}

func (c *side) running(m turnkeeper.Message) bool {
	if m.State != turnkeeper.MessageRunning {
		return false
	}
	turn, _ := c.Turn(m.TurnID)
	return turn.State == turnkeeper.TurnRunning
}

func (c *side) readTurn(id turnkeeper.TurnID) {
	name := c.name(id)
	turn, rounds := c.Turn(id)
	c.add(name, turn)
	c.add(name+" rounds", rounds)
	c.add(name+" events", c.Events(id))
	c.add(name+" grants", c.Grants(id))
	all := c.Asks(id)
	for i := range all {
		all[i].ClosedAt = time.Time{} // the suite cannot move it
	}
	c.add(name+" asks", all)
	for _, r := range rounds {
		for _, call := range r.Calls {
			if call.OutputID != "" {
				c.readOutput(fmt.Sprintf("%s output of %s", name, call.Key), id, call.OutputID)
			}
		}
	}
}

func (c *side) readOutput(name string, turn turnkeeper.TurnID, id turnkeeper.OutputID) {
	o, err := c.Outputs().DescribeOutput(c.Context(), turn, id)
	o.Call = turnkeeper.CallKey{} // the caller has found the output by it
	if err == nil {
		c.add(name, o)
	}
	c.add(name+" error", err)
	text, err := c.Outputs().ReadOutput(c.Context(), turn, id, 1, 9)
	c.add(name+" text", text)
	c.add(name+" text error", err)
}

var errPeeked = errors.New("a look at a tick, which is undone")

// peek reads what a tick reads, and undoes it.
func (c *side) peek() {
	ctx := c.Context()
	err := c.Scheduler().InTick(ctx, func(t scheduler.Tick) error {
		c.look(ctx, t)
		return errPeeked
	})
	if !errors.Is(err, errPeeked) {
		c.Fatal(err)
	}
	_, err = c.Scheduler().NextDue(ctx, c.now) // it may be too short
	c.add("next due error", err)
}

func (c *side) look(ctx context.Context, t scheduler.Tick) {
	sit, locked, err := t.Snapshot(ctx, true)
	slices.Sort(sit.Running)
	lost, err2 := t.Lost(ctx, 100)
	calls, err3 := t.LostCalls(ctx, 100)
	// A store may say that calls are lost to have the tick look at them, but must not conceal that they are.
	sit.Calls = sit.Calls && len(calls) > 0
	c.add("tick", sit)
	c.add("tick locked", locked)
	c.add("tick error", err)
	c.add("lost", lost)
	c.add("lost error", err2)
	c.add("lost calls", calls)
	c.add("lost calls error", err3)
	c.arrange(ctx, t)
	ready, err := t.ReadyTurns(ctx, 100, nil)
	c.add("ready turns", ready)
	c.add("ready turns error", err)
	ready, err = t.ReadyMessages(ctx, 100, nil)
	c.add("ready messages", ready)
	c.add("ready messages error", err)
	chains, err := t.Chains(ctx, []string{modelUsed})
	c.add("chains", chains)
	c.add("chains error", err)
}

// arrange does what a tick does before it grants.
func (c *side) arrange(ctx context.Context, t scheduler.Tick) {
	n, err := t.ExpireAsks(ctx, 100)
	c.add("expired asks", n)
	c.add("expired asks error", err)
	n, err = t.SettleSpawned(ctx, true, 100)
	c.add("settled sub-agents", n)
	c.add("settled sub-agents error", err)
	c.add("lanes error", t.MoveLanes(ctx))
	for name, move := range map[string]func(context.Context) (int, error){"levels": t.MoveLevels, "held": t.MoveHeld} {
		_, err := move(ctx)
		c.add(name+" error", err)
	}
}
