package turnkeeper

import "time"

// A Silence is the silence of a turn's worker.
type Silence struct {
	For     time.Duration // since its last heartbeat
	Stopped bool          // it reported its stop
	Until   time.Time     // the next tick after this time gives the turn to another worker
}

// An UnderWay is the current activity of a running turn.
type UnderWay struct {
	Round        int       // the round in progress
	Since        time.Time // of the round's first text, or of the grant; zero: calls are running
	OutputTokens int64     // received so far, estimated from the text
	Calls        []OpenCall

	// The write to the journal that the turn's worker repeats because the database refuses it.
	RefusedFor   time.Duration // since the first attempt; 0: no write is refused
	RefusedTimes int
	RefusedCode  string // SQLSTATE of the newest refusal
	RefusedWith  string // its message, with secrets masked
}

// An OpenCall is a tool call without a result.
type OpenCall struct {
	Key       CallKey
	Name      string
	State     CallState // planned: it waits for earlier calls, or is a running read
	StartedAt time.Time // zero: no start is recorded
}
