package mcp

import (
	"time"

	"turnkeeper/internal/membudget"
)

// limits bound what a server may send, how long it may take, and how often the
// client asks it. Clients use defaultLimits; tests set others.
type limits struct {
	Frame int   // bytes of a message
	Drop  int64 // bytes of a larger message that are read to find its id

	Memory *membudget.Budget // Config.Memory

	Newest time.Duration // timeout of the handshake in the newest protocol; 0: half of the connect timeout
	// timeout of the ping after a call that timed out, and of the check before the call after a failed one
	Ping time.Duration
	End  time.Duration // time for a server to end after its input is closed
	// Reason is how long a program whose output has ended may take to exit. After
	// that, the error says that it closed its output.
	Reason time.Duration
	Resume int // attempts to resume a stream that was cut

	Progress time.Duration // how long after an answer progress is still passed on

	// Relist is the shortest and LastRelist the longest pause between two reads of a
	// list of tools that the server reports as changed. A read of a changed list also
	// writes to the Store.
	Relist, LastRelist time.Duration
	// Reread is the minimum time between two reads of the Store by calls of a
	// refused tool, which check whether an operator has accepted it.
	Reread time.Duration

	// FirstPause and LastPause are the shortest and the longest pause between
	// sessions that fail in a row. There is no pause after the first loss of a
	// session.
	FirstPause, LastPause time.Duration
}

// EndTime is the time that a session, and then its program, has to end before it is killed.
const EndTime = 2 * time.Second

func defaultLimits() limits {
	return limits{
		Frame: maxFrame, Drop: 16 * maxFrame, Ping: 5 * time.Second, End: EndTime, Reason: 5 * time.Second, Resume: 3,
		Progress: time.Second,
		Relist:   time.Second, LastRelist: 5 * time.Minute, Reread: time.Second, FirstPause: time.Second,
		LastPause: time.Minute,
	}
}
