package words

import (
	"fmt"
	"time"

	"turnkeeper"
	"turnkeeper/internal/waiting"
)

// Wait says in a clause what an open message waits for. moment formats a time.
func Wait(w waiting.Wait, moment func(time.Time) string) string {
	until := func(before string) string {
		if w.Until.IsZero() {
			return ""
		}
		return before + moment(w.Until)
	}
	switch w.Reason {
	case waiting.UnknownAgent:
		return fmt.Sprintf("agent %s is not registered: no worker has its file", Plain(w.Agent))
	case waiting.AgentRetired:
		return fmt.Sprintf("agent %s has been retired since %s", Plain(w.Agent), moment(w.Since))
	case waiting.NotDue:
		return "it is due at " + moment(w.Until)
	case waiting.EarlierMessage:
		return earlier(w)
	case waiting.LaneHeld:
		return laneHeld(w, until)
	case waiting.LaneBackoff:
		return fmt.Sprintf("lane %s pauses after %s in a row%s", line(string(w.Lane)), Plural(w.Count, "failed turn"), until(" until ")) + because(w.Why)
	case waiting.DetachedCalls:
		return fmt.Sprintf("turn %d waits for %s", w.Turn, detachedCalls(w.Count))
	case waiting.Person:
		return fmt.Sprintf("turn %d waits for a person to answer %s", w.Turn, Plural(w.Count, "ask"))
	case waiting.BudgetSpent:
		return fmt.Sprintf("the budget is spent: turn %d is deferred%s", w.Turn, until(" until ")) + because(w.Why)
	case waiting.Deferred:
		return fmt.Sprintf("turn %d is deferred%s", w.Turn, until(" until ")) + because(w.Why)
	case waiting.NotTakenUp:
		return fmt.Sprintf("turn %d is granted, but no worker has started it yet", w.Turn)
	case waiting.WorkerSilent:
		s := turnkeeper.Silence{For: w.Silent, Stopped: w.Stopped, Until: w.Until}
		return Silence(w.Worker, s, fmt.Sprintf("turn %d", w.Turn), moment)
	case waiting.ModelDown:
		return modelDown(w, moment)
	default:
		return globalWait(w, moment)
	}
}

// globalWait handles the reasons that concern all messages.
func globalWait(w waiting.Wait, moment func(time.Time) string) string {
	switch w.Reason {
	case waiting.SchedulerPaused:
		return "the scheduler has been paused since " + moment(w.Since) + because(w.Why)
	case waiting.SchedulerHoldsOff:
		return "the scheduler holds off until " + moment(w.Until) + because(w.Why)
	case waiting.SchedulerSilent:
		if w.Since.IsZero() {
			return "no scheduler has run yet"
		}
		return "no scheduler has run since " + moment(w.Since)
	case waiting.NoWorker:
		return "no worker takes turns"
	case waiting.NoFreeSlot:
		return "no slot is free: " + taken(w.Count)
	case waiting.NextTick:
		return "nothing blocks it: the scheduler grants it at its next tick"
	default:
		return string(w.Reason)
	}
}

func taken(slots int) string {
	if slots == 1 {
		return "the one slot is taken by another turn"
	}
	return fmt.Sprintf("the %s are taken by other turns", Plural(slots, "slot"))
}

// because formats a reason to append; it returns "" if there is none.
func because(why string) string {
	if why = line(why); why == "" {
		return ""
	}
	return ": " + why
}

// line returns untrusted text on one line, without its full stop.
func line(text string) string {
	return Clause(Brief(text, 300))
}

func earlier(w waiting.Wait) string {
	text := fmt.Sprintf("message %d", w.Message)
	switch {
	case w.Count >= 100:
		text += " and at least 99 others are"
	case w.Count > 2:
		text += fmt.Sprintf(" and %d others are", w.Count-1)
	case w.Count == 2:
		text += " and another are"
	default:
		text += " is"
	}
	return text + " ahead of it in lane " + line(string(w.Lane))
}

func laneHeld(w waiting.Wait, until func(string) string) string {
	lane := line(string(w.Lane))
	switch w.State {
	case turnkeeper.TurnWaiting:
		if w.Asks > 0 {
			return fmt.Sprintf("turn %d, of the same conversation, waits for a person", w.Turn)
		}
		return fmt.Sprintf("turn %d holds lane %s and waits for detached calls", w.Turn, lane)
	case turnkeeper.TurnQueued:
		return fmt.Sprintf("turn %d holds lane %s and is deferred%s", w.Turn, lane, until(" until ")) + because(w.Why)
	}
	if w.Worker == "" {
		return fmt.Sprintf("turn %d holds lane %s%s", w.Turn, lane, until(", at most until "))
	}
	return fmt.Sprintf("turn %d of worker %s holds lane %s%s", w.Turn, line(string(w.Worker)), lane, until(", at most until "))
}

func detachedCalls(n int) string {
	if n == 1 {
		return "a detached call"
	}
	return Plural(n, "detached call")
}

func modelDown(w waiting.Wait, moment func(time.Time) string) string {
	text := fmt.Sprintf("model %s has been down since %s", line(w.Model), moment(w.Since))
	if w.Turn != 0 {
		text += fmt.Sprintf("; turn %d tries it now", w.Turn)
	} else {
		text += "; it is tried again at " + moment(w.Until)
	}
	return text + because(w.Why)
}

// Silence says in a clause that the worker of a turn is silent or stopped. moment formats a time.
func Silence(worker turnkeeper.WorkerID, s turnkeeper.Silence, turn string, moment func(time.Time) string) string {
	who := "worker " + line(string(worker))
	if worker == "" {
		who = "its worker"
	}
	if s.Stopped {
		who += " has stopped"
	} else {
		who += " has been silent for " + Coarse(s.For)
	}
	return fmt.Sprintf("%s; %s is taken over at %s", who, turn, moment(s.Until))
}
