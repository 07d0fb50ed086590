package mcp

import "time"

// limits bound what a server may send, how long it may take, and how often it is
// asked. Clients use defaultLimits; tests set others.
type limits struct {
	Frame int   // bytes of a message
	Drop  int64 // bytes of a larger one that are read to find whose answer it is

	Newest time.Duration // for an answer in the newest protocol; 0: half of the connect timeout
	Ping   time.Duration // for a sign of life after a call that ran out of time
	End    time.Duration // for a server to end, once its input is closed
	// Reason is for a program whose output has ended to end itself, before it counts as
	// one that has only closed it.
	Reason time.Duration
	Resume int // attempts to read on in a stream that was cut

	Progress time.Duration // is still passed on so long after an answer

	// Relist is the least time between two looks at a list that changes: each look is
	// also written down.
	Relist time.Duration
	// Reread is how often calls of a refused tool look whether an operator has accepted
	// it.
	Reread time.Duration

	// The pauses between sessions that fail one after the other. After the first loss of
	// a session there is none.
	FirstPause, LastPause time.Duration
}

func defaultLimits() limits {
	return limits{
		Frame: maxFrame, Drop: 16 * maxFrame, Ping: 5 * time.Second, End: 2 * time.Second, Reason: 5 * time.Second, Resume: 3, Progress: time.Second,
		Relist: time.Second, Reread: time.Second, FirstPause: time.Second, LastPause: time.Minute,
	}
}
