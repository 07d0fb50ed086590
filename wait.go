package turnkeeper

import "time"

// A Silence is that of a worker that a turn runs on.
type Silence struct {
	For     time.Duration // since its last sign of life
	Stopped bool          // it has said that it stops
	Until   time.Time     // when the turn goes to another worker, by the scheduler's next look after that
}

// SilentAfter is how long a worker may send no heartbeat before all views call it silent: longer
// than any pause between two heartbeats.
const SilentAfter = 15 * time.Second

// An UnderWay is what a running turn does at the moment.
type UnderWay struct {
	Round        int       // that a model is asked for, or whose calls run
	Since        time.Time // of the round's first text; of the grant, where no text has come. Zero: calls run
	OutputTokens int64     // of the answer so far, estimated from its text
	Calls        []OpenCall
}

// An OpenCall is a tool call that is not answered.
type OpenCall struct {
	Key       CallKey
	Name      string
	State     CallState // planned: it waits for those before it, or is a read that runs
	StartedAt time.Time // zero: no start is on record
}
