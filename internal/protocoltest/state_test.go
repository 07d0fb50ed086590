package protocoltest

import (
	"fmt"
	"strings"

	"turnkeeper"
	"turnkeeper/internal/granting"
)

// changes describes what has changed since it was last printed.
func (e *env) changes() []string {
	var out []string
	show := func(name string, lines ...string) {
		text := strings.Join(lines, "\n")
		if e.shown[name] == text {
			return
		}
		e.shown[name] = text
		for i, line := range lines {
			if i == 0 {
				line = name + ": " + line
			}
			out = append(out, line)
		}
	}
	lanes := map[turnkeeper.Lane]bool{}
	for _, m := range e.store.Messages() {
		show(fmt.Sprint("message ", m.ID), e.message(m))
		if l, granted := e.store.Lease(m.Lane); granted && !lanes[m.Lane] {
			lanes[m.Lane] = true
			show("lane "+string(m.Lane), e.lease(l))
		}
	}
	for id := turnkeeper.TurnID(1); ; id++ {
		turn, rounds, events, ok := e.store.Turn(id)
		if !ok {
			break
		}
		show(fmt.Sprint("turn ", id), e.turn(turn, rounds)...)
		if printed := e.printed[id]; len(events) > printed {
			e.printed[id] = len(events)
			out = append(out, "  events "+eventTypes(events[printed:]))
		}
	}
	for _, m := range e.store.Models() {
		state := "up"
		if m.Down() {
			state = fmt.Sprintf("down (%s), not asked before %s", m.ErrorClass, e.at(m.Until))
		}
		show("model "+m.Model, state)
	}
	for _, r := range e.store.Replies() {
		show(fmt.Sprint("reply to message ", r.MessageID), fmt.Sprintf("%s %q", r.Outcome, r.Body))
	}
	return out
}

func (e *env) message(m turnkeeper.Message) string {
	line := fmt.Sprintf("%s, %s", m.Agent, m.State)
	if !m.Slot.IsZero() {
		line += ", slot " + m.Slot.UTC().Format("2006-01-02 15:04")
	}
	return line
}

func (e *env) lease(l granting.Lease) string {
	line := fmt.Sprintf("token %d", l.Token)
	if l.Held() {
		return fmt.Sprintf("%s, held for turn %d until %s", line, l.TurnID, e.at(l.Until))
	}
	line += ", free"
	if !l.NotBefore.IsZero() {
		line += " from " + e.at(l.NotBefore)
	}
	return line
}

func (e *env) turn(t turnkeeper.Turn, rounds []turnkeeper.Round) []string {
	line := fmt.Sprintf("%s, dispatch %d, token %d", t.State, t.Dispatches, t.Token)
	if t.WorkerID != "" {
		line += ", " + string(t.WorkerID)
	}
	if t.Losses > 0 {
		line += fmt.Sprintf(", %d lost", t.Losses)
	}
	if !t.DueAt.IsZero() && t.State == turnkeeper.TurnQueued {
		line += ", due at " + e.at(t.DueAt)
	}
	if t.StopReason != "" {
		line += ", " + string(t.StopReason)
	}
	lines := []string{line}
	for _, r := range rounds {
		if r.Text != "" {
			lines = append(lines, fmt.Sprintf("  round %d: %q", r.Number, r.Text))
		}
		for _, c := range r.Calls {
			line := fmt.Sprintf("  round %d: call %d %s (%s) %s", r.Number, c.Key.Ordinal, c.Name, c.Effect, c.State)
			if c.Starts > 0 {
				line += fmt.Sprintf(", starts %d", c.Starts)
			}
			if c.LateResult != "" {
				line += fmt.Sprintf(", late result %q", c.LateResult)
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// eventTypes names the events. The three of a block of text that came at once are named as one.
func eventTypes(events []turnkeeper.Event) string {
	var names []string
	for _, e := range events {
		names = append(names, string(e.Type))
	}
	all := strings.ReplaceAll(strings.Join(names, " "), "block_start block_delta block_stop", "block")
	return fmt.Sprintf("%d to %d: %s", events[0].Seq, events[len(events)-1].Seq, all)
}
