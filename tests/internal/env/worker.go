package env

import (
	"fmt"
	"regexp"
)

// takeoverAfter is the silence after which workers count as lost, unless a flag says otherwise. A
// live worker on a busy machine may be silent for seconds. A test need not wait for a worker that
// it killed or stopped: see Kill and CountAsLost.
const takeoverAfter = "1m"

// pollInterval is how often schedulers poll, unless a test sets another time: notifications make everything happen.
const pollInterval = "1h"

// holdTime is how long a test may hold a call before the call moves to the background, or a model
// call before it is retried, unless the test sets another time. It leaves time to start other
// workers.
const holdTime = "1m"

// farZone is the time zone of every second worker. It is another day there than in UTC for most of the time: UTC+14.
const farZone = "Pacific/Kiritimati"

// StartWorker starts a worker with the marker tools and waits until it is ready.
func (e *Env) StartWorker(flags ...string) *Process {
	e.T.Helper()
	w := e.LaunchWorker(flags...)
	w.Await("worker ready")
	return w
}

// LaunchWorker is like StartWorker, but does not wait.
func (e *Env) LaunchWorker(flags ...string) *Process {
	e.T.Helper()
	e.Workers++
	environ := e.Environ()
	if e.Workers%2 == 0 {
		environ = append(environ, "TZ="+farZone)
	}
	return StartProcess(e.T, fmt.Sprintf("worker %d", e.Workers), e.Dir, environ, Binary(e.T, "markerworker"), flags...)
}

var apiLine = regexp.MustCompile(`(?m)^  api +(http://\S+)$`)

// APIURL returns the base URL of a worker's HTTP API, which the worker prints when it starts.
func (p *Process) APIURL() string {
	p.T.Helper()
	p.Await("\n  api ")
	p.Await("\n  agents ")
	found := apiLine.FindStringSubmatch(p.Output.String())
	if found == nil {
		p.T.Fatalf("%s printed no URL of its API:\n%s", p.Name, p.Output.Tail())
	}
	return found[1]
}

// Kill ends a worker as a power cut would, and makes it count as lost.
func (e *Env) Kill(w *Process) {
	e.T.Helper()
	w.Kill()
	e.CountAsLost(w)
}

// CountAsLost makes a dead or stopped worker count as lost now, as if it had been silent for an
// hour. It also shortens the takeover timeout of the worker, so that a heartbeat still on its way
// does not count. A worker without a takeover timeout is lost only at the end of its leases.
func (e *Env) CountAsLost(w *Process) {
	e.T.Helper()
	e.Exec(
		`update worker_heartbeat set beat_at = beat_at - interval '1 hour', takeover_after = least(takeover_after, interval '1 ms')
		where pid = $1`, w.Cmd.Process.Pid)
	e.Exec("notify turnkeeper_inbox")
}

// CountAsAlive undoes CountAsLost for a worker that is about to be resumed.
func (e *Env) CountAsAlive(w *Process) {
	e.T.Helper()
	e.Exec(
		`update worker_heartbeat set beat_at = clock_timestamp(), takeover_after = case when takeover_after > interval '0' then $2::text::interval else takeover_after end
		where pid = $1`, w.Cmd.Process.Pid, takeoverAfter)
}

// PauseScheduler stops the scheduler from granting turns until ResumeScheduler.
func (e *Env) PauseScheduler(reason string) {
	e.T.Helper()
	if r := e.Turnctl("scheduler", "pause", reason); r.Code != 0 {
		e.T.Fatalf("pause: %s", r.Stderr)
	}
}

// ResumeScheduler ends PauseScheduler.
func (e *Env) ResumeScheduler() {
	e.T.Helper()
	if r := e.Turnctl("scheduler", "resume"); r.Code != 0 {
		e.T.Fatalf("resume: %s", r.Stderr)
	}
}
