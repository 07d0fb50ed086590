// Package storesuite tests the properties of messages, leases, journals and schedules that every
// store must keep, as named subtests. Postgres (through packages storage and jobs) and
// internal/memory both pass it, so a simulation over internal/memory also covers Postgres.
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
	"turnkeeper/asks"
	"turnkeeper/internal/granting"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/retention"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/turnlog"
	"turnkeeper/internal/waiting"
	"turnkeeper/scheduler"
)

// A Store is a new, empty store under test. Methods that return no error fail the test themselves.
type Store interface {
	// Scheduler returns the store for the real scheduler. Leases last LeaseTTL.
	Scheduler() scheduler.Store
	Register(a turnkeeper.AgentRegistration)
	// Retire retires an agent, or restores it.
	Retire(agent string, retired bool)
	Enqueue(ctx context.Context, m turnkeeper.Submission) (turnkeeper.MessageID, error)
	Beat(e presence.Heartbeat)
	// Present connects the worker's process, until disconnect is called.
	Present(worker turnkeeper.WorkerID) (disconnect func())
	// Fetch fetches every queued job of a turn, as the worker.
	Fetch(worker turnkeeper.WorkerID) []Job
	BindGrant(ctx context.Context, turn turnkeeper.TurnID, grant turnkeeper.GrantID,
		worker turnkeeper.WorkerID) (first bool, err error)
	Load(ctx context.Context, turn turnkeeper.TurnID, grant turnkeeper.GrantID) (*turnlog.Record, error)
	// ForgetFetch queues a fetched job again, as a crash of the server that lost the fetch.
	ForgetFetch(job turnkeeper.JobID)
	// FetchCalls fetches every queued job of a detached call, as the worker.
	FetchCalls(worker turnkeeper.WorkerID) []turnlog.CallRef
	Claim(ctx context.Context, ref turnlog.CallRef, worker turnkeeper.WorkerID,
		tools []string) (turnlog.ClaimedCall, error)
	Arrive(ctx context.Context, c turnlog.ClaimedCall, r turnlog.CallResult) error
	Release(ctx context.Context, c turnlog.ClaimedCall) error
	ClaimsHeld(ctx context.Context, claims []turnlog.ClaimID) ([]turnlog.ClaimID, error)
	Journal(record *turnlog.Record, grant turnkeeper.Grant) agentturn.Journal
	// EndTurn and CancelMessage report whether the turn has ended so; otherwise its holder ends it.
	EndTurn(ctx context.Context, id turnkeeper.TurnID, how turnlog.WantedEnd) (closed bool, err error)
	CancelMessage(ctx context.Context, id turnkeeper.MessageID) (turn turnkeeper.TurnID, closed bool, err error)
	// Asks lists the asks of a turn in order.
	Asks(turn turnkeeper.TurnID) []asks.Ask
	AnswerAsk(ctx context.Context, id asks.ID, a asks.Answer) (asks.State, error)
	RecentCalls(ctx context.Context, agent, name, argsHash string, within time.Duration) ([]turnlog.PastCall, error)
	// Extractions returns the cache of extractions.
	Extractions() extract.Cache
	// Outputs reads stored results.
	Outputs() toolrun.Outputs
	Keeper() Keeper
	// Effect makes an effect in the transaction of a transactional tool.
	Effect(ctx context.Context, name string)
	Effects() []string // committed effects

	// Blockers returns why an open message, or its queued turn, is not granted now.
	Blockers(id turnkeeper.MessageID) []waiting.Reason

	// Budget returns the budgets of the store, which decide survival levels.
	Budget() agentturn.Budget
	// PinLevel pins the survival level of an agent, or of all with an empty name. An empty level ends that.
	PinLevel(agent string, level survival.Level)
	Schedule(agent, name string) turnkeeper.Schedule

	// Fail makes everything that a tick does with a row fail, or ends that.
	Fail(row granting.Subject, fails bool)

	// Pass moves the clock forward by d, or back if d is negative.
	Pass(d time.Duration)
	// CutNext loses the next request of journals opened from now on, or the next Arrive: after the
	// store did it if done is set, otherwise before.
	CutNext(done bool)

	Message(id turnkeeper.MessageID) turnkeeper.Message
	FindMessage(ctx context.Context, id turnkeeper.MessageID) (turnkeeper.Message, error)
	Reply(id turnkeeper.MessageID) (turnkeeper.Reply, bool)
	Turn(id turnkeeper.TurnID) (turnkeeper.Turn, []turnkeeper.Round)
	Events(id turnkeeper.TurnID) []turnkeeper.Event
	RequestParts(ctx context.Context, hashes ...string) (map[string]string, error)
	Grants(id turnkeeper.TurnID) []turnkeeper.Dispatch
}

// A Keeper lists what is stored, and deletes what is no longer needed. Its methods fail the test themselves.
type Keeper interface {
	// Sweep removes abandoned drafts.
	Sweep()
	// Expire deletes a class of what is stored of messages that were closed for at least a time, and returns of how
	// many turns.
	Expire(class retention.Class, kept time.Duration) (turns int)
	// Rows lists the ids of all messages and turns, in order.
	Rows() ([]turnkeeper.MessageID, []turnkeeper.TurnID)
}

// LeaseTTL is the lease time of every grant.
const LeaseTTL = 240 * time.Second

// A Job is the queued job of a grant.
type Job struct {
	ID      turnkeeper.JobID
	TurnID  turnkeeper.TurnID
	GrantID turnkeeper.GrantID
}

// A property is a test that every store must pass.
type property struct {
	name string
	test func(*env)
}

// Run runs the suite. open returns a new Store for one subtest.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for _, property := range append(slices.Concat(spawnProperties, backgroundProperties, healthProperties,
		askProperties, labelProperties, orderProperties, asideProperties, userProperties, finishProperties,
		levelProperties,
		retentionProperties), []property{
		{"a message is accepted once per key", keys},
		{"a refused message writes nothing", refusals},
		{"a lane has one open turn", oneOpenTurn},
		{"a lane is handled in order", inOrder},
		{"a message is not granted before it is due", dueLater},
		{"a clock set back makes no message due early", clockBackDelayed},
		{"a retired agent accepts and starts nothing", retiredAgent},
		{"the token only grows", tokens},
		{"a tick excludes another", ticksExclude},
		{"a failed tick changes nothing", tickUndone},
		{"the fence refuses an old grant", oldGrant},
		{"a grant is bound to one worker", oneWorker},
		{"a grant stays with its worker if another fetches the job", boundNotFetched},
		{"a write based on an older journal is refused", staleWriter},
		{"a lost write is not mistaken for another writer's", lostAmongOthers},
		{"a write lost before a take-over is not found", lostBeforeTakeover},
		{"an entry is written whole or not at all", atomicEntry},
		{"a round stores the recipe of its request", recipeKept},
		{"a summary belongs to its conversation and is written with its round", summaryKept},
		{"turns older than the history are counted", olderCounted},
		{"cancelled and failed turns are in the history", earlierTurns},
		{"a run of a schedule sees the previous run", previousRun},
		{"a start is unique", startUnique},
		{"a repeatable call may be started again", startAgain},
		{"only the newest start may have a result", newestStart},
		{"a verdict is for a started call only", verdictOnStarted},
		{"a late result is stored beside the verdict", lateAfterVerdict},
		{"a late result is the result while no worker has the turn", lateWithoutWorker},
		{"a late result under the newest grant is the result", lateUnderOwnGrant},
		{"a late result while another worker has the turn changes nothing", lateWithAnotherWorker},
		{"a late result of an awaited call changes nothing", lateOfAwaitedCall},
		{"a late result after the end changes nothing", lateAfterEnd},
		{"reply and end are written together", endTogether},
		{"a reply without a text", replyWithoutText}, {"refused calls in a reply", refusedCalls},
		{"a stale end leaves no trace", staleEnd},
		{"a turn handed back is continued", handedBack},
		{"a failed turn is retried after a backoff", failedRetry},
		{"a message that fails finally is answered", failedFinally},
		{"three losses end a message without running it", threeLosses},
		{"a round interrupted by the last loss is rolled back", lostInARound},
		{"an unclaimed grant is no loss", unclaimed},
		{"an agent's lanes are changed while a message waits", func(e *env) { e.changeLanes(nil) }},
		{"an agent's lanes are changed while a turn runs", func(e *env) { e.changeLanes(granted) }},
		{"an agent's lanes are changed while a turn is put off", func(e *env) { e.changeLanes(putOff) }},
		{"a silent worker loses its turn", silentWorker},
		{"a loss of a connected worker does not count against the message", lateWorkers},
		{"a loss of a worker that returns does not count against the message", workerReturns},
		{"silence counts from the end of a database outage", databaseOutage},
		{"a lost answer is settled by reading back", lostAnswer},
		{"a lost request is sent again", lostRequest},
		{"a lost answer of the end is settled", lostEnd},
		{"a transactional call commits with its record", transact},
		{"a failed transactional call is rolled back and recorded", transactFailure},
		{"a clock set back blocks no lane", clockBackLease},
		{"a clock adjusted by seconds loses no grant", clockAdjusted},
		{"a clock set back blocks no message", clockBackMessage},
		{"missed slots collapse into one", slotsCollapse},
		{"a slot becomes one message", slotOnce},
		{"a schedule with an invalid message blocks nothing", slotRefused},
		{"event numbers have no gap", eventNumbers},
		{"the usage of tool calls and failed model calls counts for the turn", callUsage},
		{"an extraction is found by its whole key", extractionKeys},
		{"an output is read by characters", readByCharacters},
		{"a draft is visible once its result is recorded", draftRecorded},
		{"an unrecorded draft is never visible", draftUnrecorded},
		{"a repeated part is stored once", partTwice},
		{"a waiting turn holds no lease and keeps its lane", waitsHoldingNothing},
		{"a completed call queues its waiting turn", resultWakesTurn},
		{"a turn does not wait for a completed call", resultBeforeWait},
		{"a turn without open calls does not wait", nothingToWaitFor},
		{"a completion does not conflict with the turn's writes", resultWhileRunning},
		{"a detached call is claimed once", claimOnce},
		{"a claim is invalid once its call is answered", claimVoid},
		{"a released detached call is no loss", released},
		{"a lost detached call of effect once is unknown", lostOnce},
		{"a repeatable detached call is retried a limited number of times", lostRepeatable},
		{"a detached call fails at its timeout", overdue},
		{"a detached call fails if nobody claims it", neverClaimed},
		{"a released call waits as long for a worker as at first", releasedUnclaimed},
		{"a lost answer of a completion is settled", lostCompletion},
		{"a fetched but unclaimed job of a detached call is queued again", overlookedFetch},
		{"a clock set back blocks no detached call", clockBackDetachedCall},
		{"a completed result survives the loss of its turn's workers", resultThenLost},
		{"a waiting message is cancelled with a reply", cancelWaiting},
		{"a waiting turn is cancelled with its calls", cancelAwaiting},
		{"a cancellation keeps completed results", cancelAfterResult},
		{"a queued turn is cancelled with its calls", cancelQueued},
		{"a running turn is cancelled by its holder", cancelRunning},
		{"a cancellation survives the loss of the worker", cancelThenLost},
		{"a turn that is to be cancelled is cancelled when it loses its last worker", cancelThenLostLast},
		{"a turn asked to cancel neither waits nor is retried", cancelThenEnd},
		{"an ended turn is not cancelled", cancelEnded},
		{"a cancelled reply keeps what was shown", cancelShown},
	}...) {
		t.Run(property.name, func(t *testing.T) { property.test(newEnv(t, open(t))) })
	}
}
