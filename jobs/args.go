package jobs

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/riverqueue/river"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// Queue is the River queue of turns.
const Queue = "turns"

// QueueOf returns the River queue that only this worker works, for turns granted to it
// by name.
func QueueOf(worker turnkeeper.WorkerID) string {
	sum := sha256.Sum256([]byte(worker)) // River restricts the characters and length of names
	return Queue + "_" + hex.EncodeToString(sum[:16])
}

// TurnArgs are the arguments of a turn's job: ids only, because the row outlives the
// turn and River's tools show it.
type TurnArgs struct {
	TurnID  turnkeeper.TurnID  `json:"turn_id"`
	GrantID turnkeeper.GrantID `json:"grant_id"`
}

// Kind returns the kind of the job, which is part of the contract.
func (TurnArgs) Kind() string { return "AgentTurn" }

// InsertOpts returns one attempt, in the queue of turns.
func (TurnArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{MaxAttempts: 1, Queue: Queue}
}

// CallQueueOf returns the River queue of a tool's detached calls, as in the SQL function
// ring_detached. Each tool has a queue, so that workers that lack a tool do not fetch
// its calls.
func CallQueueOf(tool string) string {
	sum := sha256.Sum256([]byte(tool)) // River restricts the characters and length of names
	return "detached_" + hex.EncodeToString(sum[:16])
}

// CallArgs are the arguments of the job of a detached call.
type CallArgs struct {
	TurnID  turnkeeper.TurnID `json:"turn_id"`
	Round   int               `json:"round"`
	Ordinal int               `json:"ordinal"`
	Attempt int               `json:"attempt"`
}

// Kind returns the kind of the job.
func (CallArgs) Kind() string { return "DetachedCall" }

// InsertOpts returns one attempt.
func (CallArgs) InsertOpts() river.InsertOpts { return river.InsertOpts{MaxAttempts: 1} }

func (a CallArgs) ref() turnlog.CallRef {
	return turnlog.CallRef{TurnID: a.TurnID, Key: turnkeeper.CallKey{Round: a.Round, Ordinal: a.Ordinal},
		Attempt: a.Attempt}
}

// The minimum time between two fetches of River, and the poll interval of each queue. River's
// defaults limit a slot to ten jobs a second, and make the second of two quick inserts
// wait for a poll.
const (
	fetchCooldown = time.Millisecond
	fetchPoll     = 5 * time.Second
)
