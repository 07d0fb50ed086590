package turnkeepertest

import "fmt"

// PointEffectBefore and PointEffectAfter are the points within a tool that calls
// Ledger.Do. All other points are those of agentturn.FaultPoints.
const (
	PointEffectBefore = "effect.before" // the tool runs; the effect has not happened
	PointEffectAfter  = "effect.after"  // the effect has happened; Do has not returned
)

// A Point is one passage of a labelled point of a run.
type Point struct {
	Name string
	N    int // counts the passages of that name in the run, from 1
}

func (p Point) String() string {
	if p.N == 1 {
		return p.Name
	}
	return fmt.Sprintf("%s %d", p.Name, p.N)
}

// A Fault is a failure injected into a run; see CrashAt, PauseAt and LoseAnswer.
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

// CrashAt returns a fault that kills the worker that passes the point for the nth time in
// the run, n from 1. Another worker starts, and takes over when the dead one has been
// silent for Scenario.TakeoverAfter.
func CrashAt(point string, n int) Fault { return Fault{crash, Point{point, n}} }

// PauseAt returns a fault that stops the worker that passes the point for the nth time in
// the run, n from 1, as SIGSTOP does. Another worker starts and takes over. After the
// reply to the current message, the stopped worker resumes and goes on with its work
// until it notices that its lease is lost.
func PauseAt(point string, n int) Fault { return Fault{pause, Point{point, n}} }

// LoseAnswer returns a fault that executes the nth request of that name, n from 1, and
// cuts the connection before the answer: the worker cannot know whether the request was
// executed. The names are those of Result.Writes: "step" (a write to the journal),
// "finish" (the last write, with the reply), "transact.begin" and "transact.commit" (of a
// transactional tool), "late" (a late result), "claim" and "arrive" (of a detached call:
// its claim and its result).
func LoseAnswer(request string, n int) Fault { return Fault{lose, Point{request, n}} }

// losable holds the requests whose answers can be lost.
var losable = map[string]bool{"step": true, "finish": true, "transact.begin": true, "transact.commit": true,
	"late": true, "claim": true, "arrive": true}
