package diagnosis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnkeeper/internal/granting"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// examineRefused reports what the database refuses to workers, as of their last heartbeats.
func examineRefused(d *Report, workers []presence.Heartbeat) {
	for _, w := range workers {
		if len(w.Refused) == 0 || w.State() == presence.Stopped {
			continue
		}
		longest, turns := w.Refused[0], []string{}
		for _, r := range w.Refused {
			if r.Turn != 0 {
				turns = append(turns, fmt.Sprint(r.Turn))
			}
		}
		found := fmt.Sprintf("of worker %s: %s: %s", w.WorkerID, words.Refusing(longest.For, longest.Attempts,
			longest.SQLState), longest.Message)
		if len(turns) > 0 {
			found += "; " + words.Plural(len(turns), "turn") + " " + verb(len(turns), "waits", "wait") + ": " +
				strings.Join(turns, ", ")
		}
		d.Add(Fail, "refused writes", words.Brief(found, 500), words.WriteAdvice(longest.SQLState))
	}
}

// examineWorkers checks the workers and returns how many are alive. That none is alive is a failure if messages or
// turns wait.
func examineWorkers(d *Report, set Settings, workers []presence.Heartbeat, queue operate.Totals) (alive int) {
	slots := 0
	var silent, draining, serving []string
	for _, w := range workers {
		switch w.State() {
		case presence.Alive:
			alive++
			slots += w.Slots
		case presence.Serving:
			serving = append(serving, string(w.WorkerID)+" ("+strings.Join(w.Roles, ", ")+")")
		case presence.Draining:
			draining = append(draining, string(w.WorkerID))
		case presence.Silent:
			silent = append(silent, string(w.WorkerID))
		}
	}
	verdict, found := Warn, fmt.Sprintf("%d alive with %s", alive, words.Plural(slots, "slot"))
	for _, waits := range []struct {
		n    int
		noun string
	}{{queue.Waiting, "message"}, {queue.Queued, "queued turn"}} {
		if alive == 0 && waits.n > 0 {
			verdict, found = Fail, found+"; "+words.Plural(waits.n, waits.noun)+" "+verb(waits.n, "waits", "wait")
		}
	}
	d.Judge(alive > 0, verdict, "workers", found, "start one: "+set.command("worker"))
	if len(silent) > 0 {
		d.Add(Warn, "lost workers", strings.Join(silent, ", "),
			"find out why they died; other workers take over their turns")
	}
	if len(draining) > 0 {
		d.Add(OK, "taking no turns", strings.Join(draining, ", ")+": shutting down", "")
	}
	if len(serving) > 0 {
		d.Add(OK, "other roles", strings.Join(serving, ", ")+": they take no turns", "")
	}
	return alive
}

// schedulersOf returns the live processes with the role scheduler.
func schedulersOf(workers []presence.Heartbeat) (ids []string) {
	for _, w := range workers {
		if state := w.State(); state != presence.Stopped && state != presence.Silent && slices.Contains(w.Roles,
			presence.RoleScheduler) {
			ids = append(ids, string(w.WorkerID))
		}
	}
	return ids
}

// A scheduling says who schedules.
type scheduling struct {
	by       []string // live processes with the role scheduler
	expected bool     // some process is alive; if not, the check of the workers says what to do
	failing  bool     // ticks fail, which is reported already
}

// examineScheduler reports a scheduler that does not grant.
func examineScheduler(d *Report, set Settings, s operate.SchedulerSettings, c words.Clock, who scheduling) {
	poll := cmp.Or(s.PollInterval, set.PollInterval)
	late := max(6*poll, time.Minute)
	ran := "last ran " + c.At(s.LastTickAt)
	silent := s.LastTickAt.IsZero() || c.Now.Sub(s.LastTickAt) > late
	if s.LastTickAt.IsZero() {
		ran = "has never run"
	}
	advice := "give a worker the role scheduler"
	if len(who.by) > 0 && silent {
		ran += fmt.Sprintf(", though %s %s the role scheduler", words.Enumerate(who.by),
			verb(len(who.by), "has", "have"))
		advice = "look in its log, and in pg_stat_activity for what its session waits for"
		if who.failing {
			advice = "its ticks fail: see the check \"set aside\""
		}
	}
	switch {
	case !s.PausedAt.IsZero():
		d.Add(Warn, "scheduler", "paused since "+c.At(s.PausedAt)+": "+s.PausedReason,
			set.command("turnctl")+" scheduler resume")
	case s.HoldUntil.After(c.Now):
		d.Add(Warn, "scheduler", "holds off until "+c.At(s.HoldUntil)+": "+s.HoldReason,
			"it continues by itself; if no commit was lost: "+set.command("turnctl")+" scheduler resume --now")
	default:
		d.Judge(!silent || !who.expected, Warn, "scheduler", ran, advice)
	}
}

// examineAside reports what is set aside. It returns whether ticks of the scheduler fail.
func examineAside(ctx context.Context, d *Report, set Settings, store Store, c words.Clock) (ticksFail bool) {
	rows, err := store.Aside(ctx)
	if err != nil {
		d.Unread("set aside", err)
		return false
	}
	for _, a := range rows {
		ticksFail = ticksFail || a.Kind == granting.AsideTick
		found := fmt.Sprintf("%s since %s, %s; ", asideProblem(a), c.At(a.Since), words.Plural(a.Failures, "failure"))
		if a.Kind != granting.AsideStep && a.Kind != granting.AsideTick {
			found += "next try " + c.At(a.NextTry) + "; "
		}
		d.Add(Fail, "set aside", found+"the error: "+words.Brief(a.Error, 300), asideAdvice(set, a))
	}
	return ticksFail
}

// asideProblem says what cannot be done.
func asideProblem(a granting.Aside) string {
	turn, _, _ := strings.Cut(a.ID, "/")
	switch a.Kind {
	case granting.AsideMessage:
		return "message " + a.ID + " cannot be given a turn; its lane waits"
	case granting.AsideTurn:
		return "turn " + a.ID + " cannot be granted, taken from its lost worker, or closed; its lane waits"
	case granting.AsideCall:
		return "the detached call " + a.ID + " of turn " + turn + " cannot be ended or run again"
	case granting.AsideAsk:
		return "ask " + a.ID + " cannot be closed, though it has expired"
	case granting.AsideSubAgent:
		return "the sub-agent of call " + a.ID + " of turn " + turn + " cannot be reported or cancelled"
	case granting.AsideSchedule:
		return "the slot of schedule " + a.ID + " cannot become a message"
	case granting.AsideAgent:
		return "agent " + a.ID + " cannot be registered from its file; it keeps the version it had"
	case granting.AsideDelivery:
		return "delivery " + a.ID + " of a webhook cannot be claimed"
	case granting.AsidePurge:
		return "message " + a.ID + " cannot be deleted"
	case granting.AsideTick:
		return "ticks of the scheduler fail: nothing is granted"
	default:
		return "the step \"" + a.ID + "\" of the scheduler's tick fails"
	}
}

// asideAdvice says what to do about a row.
func asideAdvice(set Settings, a granting.Aside) string {
	switch a.Kind {
	case granting.AsideTick, granting.AsideStep:
		return "remove what the error names: a trigger, a constraint, a lock, a full disk, or a row of the wrong form; it is tried again each second"
	case granting.AsidePurge:
		return "remove what the error names, then purge again; workers with a retention try it each hour"
	default:
		return fmt.Sprintf(
			"remove what the error names: a trigger, a constraint, or a row of the wrong form; then it goes on by itself, at once with: %s set-aside retry %s %s",
			set.command("turnctl"), a.Kind, a.ID)
	}
}
