package turnkeepertest

import "fmt"

// Points within a tool that records what it does in a Ledger, beside those of
// agentturn.FaultPoints.
const (
	PointEffectBefore = "effect.before" // the tool runs; the effect has not happened
	PointEffectAfter  = "effect.after"  // the effect has happened; the tool does not know yet
)

// A Point is one passage of a labelled point of a run.
type Point struct {
	Name string
	N    int // from 1: the first, the second, ... passage of that name in the run
}

func (p Point) String() string {
	if p.N == 1 {
		return p.Name
	}
	return fmt.Sprintf("%s %d", p.Name, p.N)
}

// A Fault is what goes wrong in a run.
type Fault struct {
	kind kind
	at   Point
}

type kind string

const (
	crash kind = "crash at"
	pause kind = "pause at"
	lose  kind = "answer lost of"
)

func (f Fault) String() string { return string(f.kind) + " " + f.at.String() }

// CrashAt kills the worker that passes the point for the nth time in the run, n
// from 1. Another worker starts, and takes over when the dead one has been
// silent for long enough.
func CrashAt(point string, n int) Fault { return Fault{crash, Point{point, n}} }

// PauseAt stops the worker that passes the point for the nth time in the run, n
// from 1, as SIGSTOP does. Another worker starts, and takes over; when the
// message that is being handled has its reply, the stopped worker wakes and goes
// on as if nothing had happened, until something tells it that its lease is
// gone.
func PauseAt(point string, n int) Fault { return Fault{pause, Point{point, n}} }

// LoseAnswer lets the nth request of that name be done, n from 1, and cuts the
// connection before its answer: the worker cannot know whether it was done. The
// requests are those of Result.Writes: "step" (a write to the journal),
// "finish" (its last one, with the reply), "transact.begin" and
// "transact.commit" (of a transactional tool), "late".
func LoseAnswer(request string, n int) Fault { return Fault{lose, Point{request, n}} }

// losable are the requests whose answers can be lost.
var losable = map[string]bool{"step": true, "finish": true, "transact.begin": true, "transact.commit": true, "late": true, "claim": true, "arrive": true}
