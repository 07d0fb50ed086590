// Package storesuite is what every store of Turnkeeper must keep: properties of
// messages, leases, journals and schedules, as named subtests, behind one small
// door. Postgres passes it through packages storage and jobs, and so does
// internal/memory: a simulation over that store then says something of the other.
package storesuite

import (
	"context"
	"slices"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/agentturn"
	"turnkeeper/agentturn/extract"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/scheduler"
)

// A Door is a fresh, empty store. Its methods fail the test themselves where
// they return no error.
type Door interface {
	// Scheduler is the store as the real scheduler sees it. Leases last LeaseTTL.
	Scheduler() scheduler.Store
	Register(a turnkeeper.AgentRegistration)
	// Retire retires an agent, or restores it.
	Retire(agent string, retired bool)
	Enqueue(ctx context.Context, m turnkeeper.Submission) (turnkeeper.MessageID, error)
	Beat(h turnkeeper.Heartbeat)
	// Present connects the worker's process, until gone is called.
	Present(worker turnkeeper.WorkerID) (gone func())
	// Fetch takes every job that rings, as the worker.
	Fetch(worker turnkeeper.WorkerID) []Job
	BindGrant(ctx context.Context, turn turnkeeper.TurnID, grant turnkeeper.GrantID, worker turnkeeper.WorkerID) (first bool, err error)
	Load(ctx context.Context, turn turnkeeper.TurnID, grant turnkeeper.GrantID) (turnkeeper.Record, error)
	// ForgetFetch makes a job ring again, as a crash of the server does that has
	// forgotten who took it.
	ForgetFetch(job turnkeeper.JobID)
	// FetchCalls takes every job of a detached call that rings, as the worker.
	FetchCalls(worker turnkeeper.WorkerID) []turnkeeper.CallRef
	Claim(ctx context.Context, ref turnkeeper.CallRef, worker turnkeeper.WorkerID, tools []string) (turnkeeper.ClaimedCall, error)
	Arrive(ctx context.Context, c turnkeeper.ClaimedCall, r turnkeeper.CallResult) error
	HandOn(ctx context.Context, c turnkeeper.ClaimedCall) error
	ClaimsHeld(ctx context.Context, claims []turnkeeper.ClaimID) ([]turnkeeper.ClaimID, error)
	Journal(record turnkeeper.Record, grant turnkeeper.Grant) agentturn.Journal
	// CancelTurn and CancelMessage say whether the turn is over; else its holder ends it.
	CancelTurn(ctx context.Context, id turnkeeper.TurnID) (closed bool, err error)
	CancelMessage(ctx context.Context, id turnkeeper.MessageID) (turn turnkeeper.TurnID, closed bool, err error)
	// Extractions are what the store keeps of them.
	Extractions() extract.Cache
	// Outputs reads stored results, and Sweep removes what nobody finished of others.
	Outputs() toolrun.Outputs
	Sweep()
	// Effect is what a transactional tool does in its transaction.
	Effect(ctx context.Context, name string)
	Effects() []string // that happened

	// Pass makes it later by d for everything that the store has a time of, or
	// earlier where d is negative.
	Pass(d time.Duration)
	// CutNext loses the next request of the journals made from here on, or the
	// next Arrive, before it is done or after.
	CutNext(done bool)

	Message(id turnkeeper.MessageID) turnkeeper.Message
	FindMessage(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.Message, error)
	Reply(id turnkeeper.MessageID) (turnkeeper.Reply, bool)
	Turn(id turnkeeper.TurnID) (turnkeeper.Turn, []turnkeeper.Round)
	Events(id turnkeeper.TurnID) []turnkeeper.Event
	RequestParts(ctx context.Context, hashes ...string) (map[string]string, error)
	Grants(id turnkeeper.TurnID) []turnkeeper.Dispatch
}

// LeaseTTL is that of every grant.
const LeaseTTL = 240 * time.Second

// A Job rings for a grant.
type Job struct {
	ID      turnkeeper.JobID
	TurnID  turnkeeper.TurnID
	GrantID turnkeeper.GrantID
}

// A property is what a store must keep.
type property struct {
	name string
	hold func(*house)
}

// Run runs the suite. open makes a Door for one subtest.
func Run(t *testing.T, open func(t *testing.T) Door) { //nolint:funlen // one entry a property
	for _, property := range append(slices.Concat(spawns, healths), []property{
		{"a message is accepted once a key", keys},
		{"a message is refused with nothing written", refusals},
		{"a lane has one open turn", oneOpenTurn},
		{"a lane is worked in order", inOrder},
		{"a message is not granted before it is due", dueLater},
		{"a clock put back hastens no message", laterBeforeStep},
		{"a retired agent takes nothing and begins nothing", retiredAgent},
		{"the token only grows", tokens},
		{"a tick excludes another", ticksExclude},
		{"a tick that fails leaves nothing", tickUndone},
		{"the fence refuses an old grant", oldGrant},
		{"a grant is bound to one worker", oneWorker},
		{"a grant is its worker's, whoever is given its job", boundNotFetched},
		{"a writer builds on what it has read", buildsOnLess},
		{"a write that was lost is not found in another's", lostAmongOthers},
		{"a write that was lost before a take-over is not found", lostBeforeTakeover},
		{"an entry is written whole or not at all", wholeEntry},
		{"a round keeps how its request was made", recipeKept},
		{"a summary is of its conversation and comes with its round", summaryKept},
		{"the turns before the history are counted", olderCounted},
		{"turns that were cancelled or failed are told", toldTurns},
		{"a run of a schedule is told of the one before", lastRunKept},
		{"a start is unique", startUnique},
		{"a repeatable call may be started again", startAgain},
		{"a result is taken from the newest start only", newestStart},
		{"a call goes on in the background", background},
		{"a call in the background is started again or judged", backgroundLost},
		{"a verdict is for a started call only", verdictOnStarted},
		{"a late result is kept beside the verdict", lateBeside},
		{"a late result without a verdict is the result", lateFirst},
		{"a late result after the end changes nothing", lateAfterEnd},
		{"reply and end come together", endTogether},
		{"a reply without a text", replyWithoutText},
		{"a stale end leaves no trace", staleEnd},
		{"a turn handed back goes on", handedBack},
		{"a failed turn backs off and is tried again", failedRetry},
		{"a message that fails for good is answered", failedForGood},
		{"three losses end a message without running it", threeLosses},
		{"a round that was streamed as a message lost its last worker is void", lostInARound},
		{"a grant nobody took is no loss", unclaimed},
		{"an agent's lanes are changed while a message waits", func(h *house) { h.changeLanes(nil) }},
		{"an agent's lanes are changed while a turn runs", func(h *house) { h.changeLanes(granted) }},
		{"an agent's lanes are changed while a turn is put off", func(h *house) { h.changeLanes(putOff) }},
		{"a silent worker's turn is taken", silentWorker},
		{"a worker that is late does not count against the message", lateWorkers},
		{"a worker that is heard of again does not count against the message", heardAgain},
		{"silence counts from the database's return", databaseAway},
		{"a lost answer is settled by reading back", lostAnswer},
		{"a lost request is sent again", lostRequest},
		{"a lost answer of the end is settled", lostEnd},
		{"a transactional call happens with its record", transact},
		{"a transactional failure is undone and kept", transactFailure},
		{"a clock put back keeps no lane", clockPutBack},
		{"a clock put back keeps no message", messageBeforeStep},
		{"missed slots collapse into one", slotsCollapse},
		{"a slot becomes one message", slotOnce},
		{"a schedule that cannot become a message holds up nobody", slotRefused},
		{"event numbers have no gap", eventNumbers},
		{"what model calls took for a tool call, or failed with, is the turn's too", callUsage},
		{"an extraction is found by its whole key", extractionKeys},
		{"a stored result is read by its characters", readByCharacters},
		{"a result that comes in parts is seen when it is recorded", seenWhenRecorded},
		{"parts that nobody recorded are never seen", neverSeen},
		{"a part that is sent twice is there once", partTwice},
		{"a turn that waits holds nothing and keeps its place", waitsHoldingNothing},
		{"an arrival queues a turn that waits", arrivalWakes},
		{"a turn does not wait past what has arrived", arrivedBeforeTheWait},
		{"a turn that awaits nothing does not wait", nothingToWaitFor},
		{"an arrival is no write of the turn", arrivalWhileRunning},
		{"a detached call is claimed once", claimOnce},
		{"a claim is void once its call is answered", claimVoid},
		{"a detached call that is handed on is no loss", handOn},
		{"a detached call of effect once that lost its worker is unknown", lostOnce},
		{"a repeatable detached call runs again, and not for ever", lostRepeatable},
		{"a detached call that outlasts its time has failed", overdue},
		{"a detached call that nobody takes has failed", unwanted},
		{"a lost answer of an arrival is settled", lostArrival},
		{"a job of a detached call that was fetched and overlooked rings again", overlookedFetch},
		{"a clock put back keeps no detached call", clockPutBackCall},
		{"what has arrived outlives its turn's workers", arrivedThenLost},
		{"a message that waits is cancelled with a reply", cancelWaiting},
		{"a turn that waits is cancelled with its calls", cancelAwaiting},
		{"what has arrived is kept by a cancellation", cancelArrived},
		{"a turn that is queued is cancelled with its calls", cancelQueued},
		{"a turn that runs is cancelled by its holder", cancelRunning},
		{"a cancellation outlives the turn's worker", cancelThenLost},
		{"a turn that was asked to be cancelled neither waits nor is tried again", cancelThenEnd},
		{"a turn that has ended is not cancelled", cancelEnded},
	}...) {
		t.Run(property.name, func(t *testing.T) { property.hold(newHouse(t, open(t))) })
	}
}
