package turnkeepertest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
)

// An Answer is a person's answer to an ask of a turn. Approve, ApproveChanged, Deny, Reply and NoAnswer return one.
type Answer struct {
	answer asks.Answer
	after  time.Duration
	none   bool
}

// Approve approves a call, or lets a turn continue after its budget is used up.
func Approve() Answer { return Answer{answer: asks.Answer{Decision: asks.Approved}} }

// ApproveChanged approves a call with other arguments, a JSON object.
func ApproveChanged(arguments string) Answer {
	return Answer{answer: asks.Answer{Decision: asks.Approved, Edited: arguments}}
}

// Deny denies a call, or declines to answer. The comment is for the model; it may be empty.
func Deny(comment string) Answer {
	return Answer{answer: asks.Answer{Decision: asks.Denied, Comment: comment}}
}

// Reply answers a question of the model, gives a tool its input, or settles whether a call happened (asks.Happened
// and so on). answer is JSON.
func Reply(answer string) Answer {
	return Answer{answer: asks.Answer{Decision: asks.Answered, Answer: answer}}
}

// NoAnswer lets an ask expire, which denies it. So does a missing Answer.
func NoAnswer() Answer { return Answer{none: true} }

// After delays the answer by d after the ask is opened. An ask of a run expires after ten minutes, or after two seconds
// in real time, or earlier if the agent's file has a shorter ask_timeout.
func (a Answer) After(d time.Duration) Answer {
	a.after = d
	return a
}

// Timeouts of asks.
const (
	fakeAskTimeout = 10 * time.Minute
	realAskTimeout = 2 * time.Second
)

// answer gives the due answers to the asks of a message. It answers asks in the order in which its turns opened them,
// while their turn waits, so that a run always passes the same points.
func (w *world) answer(message turnkeeper.MessageID, answers []Answer) {
	for i, ask := range w.asksOf(message) {
		if ask.Closed() || i >= len(answers) || answers[i].none {
			continue
		}
		if turn, _, _, _ := w.store.Turn(ask.Turn); turn.State != turnkeeper.TurnWaiting {
			continue
		}
		if wait := answers[i].after - time.Since(ask.OpenedAt); wait > 0 {
			time.AfterFunc(wait, w.ring)
			continue
		}
		answer := answers[i].answer
		answer.By, answer.Channel = "person", "turnkeepertest"
		if len(ask.Audience) > 0 {
			answer.By = ask.Audience[0]
		}
		if _, err := w.conn.AnswerAsk(context.Background(), ask.ID, answer); err != nil {
			w.problem("the ask %q about %s cannot be answered with %s: %v", ask.Reason, ask.Tool, answer.Decision, err)
			continue
		}
		if ask.Kind == asks.KindSettle && answer.Answer == asks.DidNotHappen {
			w.mu.Lock()
			w.runs[callOf{ask.Turn, ask.Call}].settled++
			w.mu.Unlock()
		}
		w.note(nil, "answers the ask about %s: %s", cmp.Or(ask.Tool, string(ask.Kind)), answer.Decision)
	}
}

// asksOf returns the asks of a message's turns, in order.
func (w *world) asksOf(message turnkeeper.MessageID) (all []asks.Ask) {
	for id := turnkeeper.TurnID(1); ; id++ {
		turn, _, _, ok := w.store.Turn(id)
		if !ok {
			break
		}
		if turn.MessageID != message {
			continue
		}
		if of, err := w.conn.Asks(context.Background(), id); err == nil {
			all = append(all, of...)
		}
	}
	slices.SortFunc(all, func(a, b asks.Ask) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
