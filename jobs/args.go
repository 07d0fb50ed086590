package jobs

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/riverqueue/river"

	"turnkeeper"
)

// Queue is the River queue of turns.
const Queue = "turns"

// QueueOf is the River queue that only one worker works: for turns that others
// have left to it.
func QueueOf(worker turnkeeper.WorkerID) string {
	sum := sha256.Sum256([]byte(worker)) // River restricts names, and their length
	return Queue + "_" + hex.EncodeToString(sum[:16])
}

// TurnArgs are the arguments of a turn's job: ids only, for the row outlives
// the turn and is shown by River's own tools.
type TurnArgs struct {
	TurnID  turnkeeper.TurnID  `json:"turn_id"`
	GrantID turnkeeper.GrantID `json:"grant_id"`
}

// Kind is the kind of the job, as the contract names it.
func (TurnArgs) Kind() string { return "AgentTurn" }

// InsertOpts are one attempt, in the queue of turns.
func (TurnArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{MaxAttempts: 1, Queue: Queue}
}

// CallQueueOf is the River queue of a tool's detached calls, as the function
// ring_detached has it. A queue for all tools would have those workers that lack a
// tool race for its calls against those that have it.
func CallQueueOf(tool string) string {
	sum := sha256.Sum256([]byte(tool)) // River restricts names, and their length
	return "detached_" + hex.EncodeToString(sum[:16])
}

// CallArgs are the arguments of the job of a detached call.
type CallArgs struct {
	TurnID  turnkeeper.TurnID `json:"turn_id"`
	Round   int               `json:"round"`
	Ordinal int               `json:"ordinal"`
	Attempt int               `json:"attempt"`
}

// Kind is the kind of the job.
func (CallArgs) Kind() string { return "DetachedCall" }

// InsertOpts are one attempt.
func (CallArgs) InsertOpts() river.InsertOpts { return river.InsertOpts{MaxAttempts: 1} }

func (a CallArgs) ref() turnkeeper.CallRef {
	return turnkeeper.CallRef{TurnID: a.TurnID, Key: turnkeeper.CallKey{Round: a.Round, Ordinal: a.Ordinal}, Attempt: a.Attempt}
}

// River looks for work at most this often, and at least that often when no
// notification comes. Its defaults cap a slot at ten jobs a second, and make
// the second of two quick inserts wait for a poll.
const (
	fetchCooldown = time.Millisecond
	fetchPoll     = time.Second
	fetchOwnPoll  = 5 * time.Second
)
