package storesuite

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/scheduler"
)

// Walks checks, over random operations from each of the seeds, that a tick with enough free slots grants exactly the
// messages and queued turns that have no blocker. A walk that failed is repeated with the same operations, because a
// back-off may end between two queries. A fault of the store does not depend on that, and fails each time.
func Walks(t *testing.T, open func(t *testing.T) Store, seeds, steps int) {
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			var w *walk
			for range 3 {
				w = newWalk(t, open(t), seed)
				if w.run(steps); len(w.faults) == 0 {
					return
				}
			}
			t.Errorf("%s\nafter\n%s", strings.Join(w.faults, "\n"), strings.Join(w.did, "\n"))
		})
	}
}

// A walk is a series of random operations.
type walk struct {
	*env
	rand    *rand.Rand
	did     []string
	faults  []string // what the last step showed
	all     []turnkeeper.MessageID
	running []*dispatch
	byConv  map[string]bool // whether the agent has a lane for each conversation
	retired map[string]bool
	rings   Rings         // nil: the store has no doorbells
	passed  time.Duration // in the current step
}

// Rings is implemented by stores with doorbells.
type Rings interface {
	// Rang reports whether a scheduler has been notified since the last call.
	Rang() bool
}

func newWalk(t *testing.T, s Store, seed int) *walk {
	w := &walk{
		env: &env{s, t}, rand: rand.New(rand.NewPCG(uint64(seed), 1)), //nolint:gosec // not for secrets
		byConv: map[string]bool{"desk": true, "asker": true}, retired: map[string]bool{},
	}
	w.rings, _ = s.(Rings)
	for _, agent := range walkAgents {
		w.register(agent)
	}
	return w
}

var walkAgents = []string{"clerk", "desk", "asker", "hasty", "few"}

func (w *walk) register(agent string) {
	r := registration(agent, w.byConv[agent])
	r.GiveUpAfter = 1000 * time.Hour
	r.Levels = levelsOfAll
	switch agent {
	case "asker":
		r.Models = []string{modelUsed}
	case "hasty":
		r.Models, r.GiveUpAfter = []string{modelUsed}, 90*time.Second
	case "few":
		r.MaxRunning = 2
		r.LanePerConversation = true
	}
	w.Register(r)
}

func (w *walk) note(format string, args ...any) { w.did = append(w.did, fmt.Sprintf(format, args...)) }

func (w *walk) run(steps int) {
	for range steps {
		w.stepAndRing()
		w.check()
		if w.Failed() {
			w.Fatalf("after\n%s", strings.Join(w.did, "\n"))
		}
		if len(w.faults) > 0 {
			return
		}
	}
}

func (w *walk) pick(from ...string) string { return from[w.rand.IntN(len(from))] }

// stepAndRing does one operation. If a message or turn has no blocker afterwards and had one before, the operation must
// have notified schedulers or, if time has passed, one must have known that it is due.
func (w *walk) stepAndRing() {
	if w.rings == nil {
		w.step()
		return
	}
	before, start := w.reasons(), w.time()
	w.passed = 0
	w.rings.Rang()
	w.step()
	rang := w.rings.Rang()
	if due, err := w.Scheduler().NextDue(w.Context(), start.Add(-w.passed)); err != nil {
		w.Fatal(err)
	} else if w.passed > 0 && due <= 0 {
		rang = true
	}
	if rang {
		return
	}
	for id, blockers := range w.reasons() {
		if was, known := before[id]; len(blockers) == 0 && (!known || len(was) > 0) {
			w.faults = append(w.faults, fmt.Sprintf(
				"message %d has no blocker any more, and was blocked by %q; no scheduler was notified", id, was))
		}
	}
}

// step does one operation.
func (w *walk) step() {
	ops := []func(){w.send, w.send, w.send, w.end, w.end, w.end, w.suspend, w.suspend, w.answer, w.answer, w.cancelOne,
		w.changeOne, w.pinOne, w.wait}
	ops[w.rand.IntN(len(ops))]()
}

func (w *walk) send() {
	m := turnkeeper.Submission{
		Agent: w.pick(append([]string{"clerk", "clerk", "clerk"}, walkAgents...)...), Conversation: w.pick("a", "b",
			"c"), Body: "x",
		Priority: []int{0, 0, 0, 5, -30, 1000}[w.rand.IntN(6)],
	}
	if w.retired[m.Agent] {
		return
	}
	if w.rand.IntN(4) == 0 {
		at := w.time().Add([]time.Duration{100 * time.Second, 20 * time.Minute}[w.rand.IntN(2)])
		m.DueAt = at
	}
	id, err := w.Enqueue(w.Context(), m)
	if err != nil {
		w.Fatal(err)
	}
	w.all = append(w.all, id)
	w.note("message %d to %s/%s, priority %d, due %v", id, m.Agent, m.Conversation, m.Priority, m.DueAt)
}

// time returns the store's time.
func (w *walk) time() (now time.Time) {
	err := w.Scheduler().InTick(w.Context(), func(t scheduler.Tick) error {
		sit, _, err := t.Snapshot(w.Context(), false)
		now = sit.Now
		return err
	})
	wantErr(w.env, "look", err, nil)
	return now
}

// one removes a random running dispatch from the list and returns it, or nil if there is none.
func (w *walk) one() *dispatch {
	if len(w.running) == 0 {
		return nil
	}
	i := w.rand.IntN(len(w.running))
	d := w.running[i]
	w.running = slices.Delete(w.running, i, i+1)
	return d
}

// write appends to a dispatch that may have lost its grant.
func (w *walk) write(d *dispatch, what string, entry turnlog.Entry) bool {
	w.note("turn %d of message %d: %s", d.grant.TurnID, d.record.Message.ID, what)
	err := d.Append(w.Context(), entry)
	if err != nil && !errors.Is(err, turnkeeper.ErrFenced) {
		w.Fatalf("%v after\n%s", err, strings.Join(w.did, "\n"))
	}
	return err == nil
}

func (w *walk) end() {
	d := w.one()
	if d == nil {
		return
	}
	entry := turnlog.Entry{}
	_, rounds := w.Turn(d.grant.TurnID)
	for _, round := range rounds {
		for _, call := range round.Calls {
			if !call.State.Answered() {
				entry.Results = append(entry.Results, result(call.Key, call.Nonce, turnkeeper.CallCancelled, "ended"))
			}
		}
	}
	if len(entry.Results) > 0 && !w.write(d, "answers its calls", entry) {
		return
	}
	o := succeeded("done")
	entry, what := turnlog.Entry{Outcome: &o}, w.pick("succeeds", "succeeds", "fails", "fails for good", "is deferred",
		"is handed back", "fails its model")
	switch what {
	case "succeeds":
		entry.Answered = w.models(d)
	case "fails":
		o = failedFor(100 * time.Second)
	case "fails for good":
		o = failed(false)
	case "is deferred":
		o = turnlog.Outcome{State: turnkeeper.TurnQueued, Error: "later", Backoff: 100 * time.Second}
	case "is handed back":
		o = turnlog.Outcome{State: turnkeeper.TurnQueued, Error: "bye"}
	case "fails its model":
		if len(w.models(d)) == 0 {
			break
		}
		seen := 0
		for _, h := range w.down() {
			seen = h.Failures
		}
		if err := d.failedBy(seen, 0); err != nil && !errors.Is(err, turnkeeper.ErrFenced) {
			w.Fatal(err)
		}
		w.note("turn %d of message %d: %s", d.grant.TurnID, d.record.Message.ID, what)
		return
	}
	w.write(d, what, entry)
}

func (w *walk) models(d *dispatch) []string {
	if agent := d.record.Turn.Agent; agent == "asker" || agent == "hasty" {
		return []string{modelUsed}
	}
	return nil
}

// suspend makes a turn wait for a person or a sub-agent.
func (w *walk) suspend() {
	d := w.one()
	if d == nil {
		return
	}
	_, rounds := w.Turn(d.grant.TurnID)
	n := len(rounds) + 1
	if !w.write(d, "plans a call", turnlog.Entry{Round: round(n, turnkeeper.EffectOnce)}) {
		return
	}
	seen := turnlog.Entry{}
	for _, a := range w.Asks(d.grant.TurnID) {
		if a.Closed() && !a.Seen {
			seen.Seen = append(seen.Seen, a.ID)
		}
	}
	what := w.pick("asks", "asks and goes on", "asks", "spawns")
	if what == "spawns" && d.record.Lineage.Parent == 0 {
		start, handle := d.spawnOf(key(n, 1), w.pick("clerk", "desk"), "sub")
		seen.Starts, seen.Results = []turnlog.CallStart{start}, []turnlog.CallResult{handle}
		w.all = append(w.all, start.Spawn.Message)
	} else {
		q := question(key(n, 1), asks.KindApprove)
		q.Hold = what != "asks and goes on"
		seen.Asks = []asks.Question{q}
	}
	if w.write(d, what, seen) {
		w.write(d, "waits", turnlog.Entry{Outcome: &turnlog.Outcome{State: turnkeeper.TurnWaiting}})
	}
}

func (w *walk) answer() {
	for _, id := range w.all {
		m, err := w.FindMessage(w.Context(), id)
		if err != nil || m.State != turnkeeper.MessageRunning {
			continue
		}
		for _, a := range w.Asks(m.TurnID) {
			if !a.Closed() && w.rand.IntN(2) == 0 {
				w.answerAsk(a.ID, approved())
				w.note("ask %d of turn %d is answered", a.ID, m.TurnID)
				return
			}
		}
	}
}

func (w *walk) cancelOne() {
	if len(w.all) == 0 {
		return
	}
	id := w.all[w.rand.IntN(len(w.all))]
	_, _, err := w.CancelMessage(w.Context(), id)
	w.note("message %d is cancelled: %v", id, err)
}

// changeOne changes an agent.
func (w *walk) changeOne() {
	agent := w.pick("clerk", "desk", "asker")
	if w.rand.IntN(2) == 0 {
		w.retired[agent] = !w.retired[agent]
		w.Retire(agent, w.retired[agent])
		w.note("%s is retired: %v", agent, w.retired[agent])
		return
	}
	w.byConv[agent] = !w.byConv[agent]
	w.register(agent)
	w.note("%s has a lane for each conversation: %v", agent, w.byConv[agent])
}

// levelsOfAll are the rules of levels of all agents of a walk.
var levelsOfAll = rationed(survival.Rules{survival.Low: from(1)[survival.Low],
	survival.Critical: {MinPriority: from(-5)[survival.Low].MinPriority}}).Levels

// pinOne pins a level, or ends that.
func (w *walk) pinOne() {
	agent := w.pick("", "clerk", "desk", "few")
	level := survival.Level(w.pick("", "", "normal", "low", "critical"))
	w.PinLevel(agent, level)
	w.note("the level of %q is pinned to %q", agent, level)
}

func (w *walk) wait() {
	d := []time.Duration{5 * time.Second, 101 * time.Second, LeaseTTL + time.Second, 2 * time.Hour}[w.rand.IntN(4)]
	w.Pass(d)
	w.passed = d
	w.note("%v pass", d)
}

func (w *walk) beat(slots int) {
	for _, id := range []turnkeeper.WorkerID{first, second} {
		w.Beat(presence.Heartbeat{WorkerID: id, Host: "h", Version: "v", Slots: slots, TakeoverAfter: takeover})
	}
}

// reasons returns, of all messages that could be granted, what blocks them apart from the scheduler and workers.
func (w *walk) reasons() map[turnkeeper.MessageID][]waiting.Reason {
	all := map[turnkeeper.MessageID][]waiting.Reason{}
	for _, id := range w.all {
		m, err := w.FindMessage(w.Context(), id)
		if err != nil || !m.ClosedAt.IsZero() {
			continue
		}
		if m.State == turnkeeper.MessageRunning {
			if turn, _ := w.Turn(m.TurnID); turn.State == turnkeeper.TurnRunning {
				continue
			}
		}
		all[id] = slices.DeleteFunc(w.Blockers(id), func(r waiting.Reason) bool {
			row, _ := waiting.RowOf(r)
			return row.Everybody
		})
	}
	return all
}

// check compares what a tick grants with what has no blocker. Without free slots, a first tick does all other work.
func (w *walk) check() {
	w.Pass(1700 * time.Millisecond)
	for range 3 {
		w.beat(0)
		w.tickAlone()
	}
	before := w.reasons()
	w.beat(20)
	w.tickAlone()
	granted := map[turnkeeper.MessageID]bool{}
	for _, d := range w.take(first) {
		id := d.record.Message.ID
		granted[id] = true
		w.running = append(slices.DeleteFunc(w.running, func(old *dispatch) bool {
			return old.grant.TurnID == d.grant.TurnID
		}), d)
		w.note("granted message %d as turn %d", id, d.grant.TurnID)
		if blockers := before[id]; len(blockers) > 0 {
			w.faults = append(w.faults, fmt.Sprintf("message %d was granted, and was blocked by %q", id, blockers))
		}
	}
	after := w.reasons()
	for id, blockers := range before {
		if len(blockers) > 0 || granted[id] {
			continue
		}
		// Another one has taken the last turn that its agent may have, or tries its model.
		if now := after[id]; !slices.Contains(now, waiting.ModelDown) && !slices.Contains(now, waiting.AgentFull) {
			w.faults = append(w.faults, fmt.Sprintf("message %d had no blocker and was not granted; now it has %q", id,
				now))
		}
	}
}
