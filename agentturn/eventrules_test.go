package agentturn_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"turnkeeper"
	"turnkeeper/agentturn/turnevents"
	askings "turnkeeper/asks"
)

// A reading is the reading of a turn's events from the first to the last, beside the journal that they tell of.
type reading struct {
	turn   turnkeeper.Turn
	rounds []turnkeeper.Round
	asks   []askings.Ask
	reply  string
	byName map[string]*turnkeeper.ToolCall

	at      turnkeeper.Event
	waited  bool                   // the event before it says that the turn waits: it holds no worker
	open    int                    // the round that streams; 0: none
	epoch   turnkeeper.EpochReason // of which its start tells
	block   int                    // the block that is open; 0: none
	blocks  int                    // the newest block
	stopped map[int]int            // round_stop events, by round
	results map[turnkeeper.CallKey]int
	asking  map[string]bool // asks with an ask_opened and no ask_closed so far
	resumed int
	faults  []string
}

// misplacedEvents returns the faults in a turn's events: events out of order, and events that contradict the journal.
func misplacedEvents(
	turn turnkeeper.Turn, rounds []turnkeeper.Round, asks []askings.Ask, events []turnkeeper.Event, reply string,
) []string {
	r := &reading{turn: turn, rounds: rounds, asks: asks, reply: reply, stopped: map[int]int{},
		results: map[turnkeeper.CallKey]int{}, asking: map[string]bool{}}
	for i, e := range events {
		r.waited, r.at = r.at.Type == turnkeeper.EventTurnWaiting, e
		rule, known := eventRules[e.Type]
		switch {
		case !known:
			r.wrong("events of this type have no rule")
		case e.TurnID != turn.ID || e.Seq != int64(i+1):
			r.wrong("it is event %d of turn %d", e.Seq, e.TurnID)
		default:
			rule(r)
		}
	}
	return r.faults
}

func (r *reading) wrong(format string, args ...any) {
	event := fmt.Sprintf("event %d, %s of round %d, block %d, %s: ", r.at.Seq, r.at.Type, r.at.Round,
		r.at.Block, r.at.Data)
	r.faults = append(r.faults, event+fmt.Sprintf(format, args...))
}

// is checks the round and the block of the event.
func (r *reading) is(round, block int) {
	if r.at.Round != round || r.at.Block != block {
		r.wrong("its place is round %d, block %d", round, block)
	}
}

// same compares a field of the event with what the journal says.
func same[T comparable](r *reading, what string, got, want T) {
	if got != want {
		r.wrong("%s is %v; the journal says %v", what, got, want)
	}
}

// dataOf decodes the data of the event.
func dataOf[T any](r *reading) (data T) {
	if err := json.Unmarshal(r.at.Data, &data); err != nil {
		r.wrong("its data: %v", err)
	}
	return data
}

// eventRules are what each event of a turn must say, and where.
var eventRules = map[turnkeeper.EventType]func(*reading){
	turnkeeper.EventTurnStart: func(r *reading) {
		data := dataOf[turnevents.TurnStartData](r)
		r.is(0, 0)
		same(r, "number", r.at.Seq, 1)
		same(r, "agent", data.Agent, r.turn.Agent)
		same(r, "message", data.Message, r.turn.MessageID)
		same(r, "trigger", data.Trigger, r.turn.Trigger)
		same(r, "attempt", data.Attempt, r.turn.Attempt)
	},
	turnkeeper.EventTurnResumed: func(r *reading) {
		r.is(0, 0)
		data := dataOf[turnevents.TurnResumedData](r)
		if r.resumed, data.Dispatch = data.Dispatch, r.resumed; r.resumed < max(data.Dispatch, 1) ||
			r.resumed > r.turn.Dispatches {
			r.wrong("after dispatch %d, of %d", data.Dispatch, r.turn.Dispatches)
		}
	},
	turnkeeper.EventTurnWaiting: func(r *reading) {
		r.is(0, 0)
		data := dataOf[turnevents.TurnWaitingData](r)
		if len(data.Reasons) == 0 || data.For == "" {
			r.wrong("it gives no reason")
		}
		for _, name := range data.Calls {
			if call := r.call(name); call != nil && r.results[call.Key] > 0 {
				r.wrong("%s has ended before", name)
			}
		}
		for _, name := range data.Asks {
			if !slices.ContainsFunc(r.asks, func(a askings.Ask) bool { return turnevents.NameOfAsk(a) == name }) {
				r.wrong("there is no %s", name)
			}
		}
	},
	turnkeeper.EventRoundStart: func(r *reading) {
		r.is(r.at.Round, 0)
		data := dataOf[turnevents.RoundStartData](r)
		if r.open = r.at.Round; r.open < 1 || r.open > len(r.rounds)+1 || data.Of < 1 {
			r.wrong("the turn has %d rounds", len(r.rounds))
		}
		r.epoch = data.Epoch
	},
	turnkeeper.EventBlockStart: func(r *reading) {
		r.blocks++
		r.is(r.open, r.blocks)
		r.block = r.at.Block
		data := dataOf[turnevents.BlockStartData](r)
		if !slices.Contains([]string{"thinking", "text", "tool_use"}, data.Kind) ||
			(data.Kind == "tool_use") != (data.Tool != "") {
			r.wrong("no such block")
		}
	},
	turnkeeper.EventBlockDelta: func(r *reading) {
		r.is(r.open, r.block)
		if data := dataOf[turnevents.BlockDeltaData](r); len(data.Text+data.Thinking+data.Arguments) == 0 {
			r.wrong("it has no text")
		}
	},
	turnkeeper.EventBlockStop: func(r *reading) {
		r.is(r.open, r.block)
		r.block = 0
	},
	turnkeeper.EventRoundRollback: func(r *reading) {
		r.is(r.open, 0)
		r.open, r.block = 0, 0
		if dataOf[turnevents.RollbackData](r).Reason == "" {
			r.wrong("it has no reason")
		}
	},
	turnkeeper.EventToolStarted: func(r *reading) {
		data := dataOf[turnevents.ToolData](r)
		if call := r.call(data.Call); call != nil {
			r.is(call.Key.Round, 0)
			same(r, "name", data.Name, call.Name)
			same(r, "state", data.State, turnkeeper.CallStarted)
			same(r, "number of results before it", r.results[call.Key], 0)
		}
	},
	turnkeeper.EventToolResult: func(r *reading) {
		data := dataOf[turnevents.ToolData](r)
		r.blocks++
		if call := r.call(data.Call); call != nil {
			r.is(call.Key.Round, r.blocks)
			r.results[call.Key]++
			same(r, "number of results", r.results[call.Key], 1)
			same(r, "name", data.Name, call.Name)
			same(r, "state", data.State, call.State)
			same(r, "preview", data.Preview, call.Preview)
			same(r, "duration", data.Millis, call.Duration.Milliseconds())
		}
	},
	turnkeeper.EventNotice: func(r *reading) {
		data := dataOf[turnevents.NoticeData](r)
		if r.is(r.at.Round, 0); data.Text == "" || r.at.Round < 1 || r.at.Round > len(r.rounds) {
			r.wrong("it says nothing, or of no round")
		}
		if data.Call == "" {
			return
		}
		if call := r.call(data.Call); call != nil {
			r.is(call.Key.Round, 0)
		}
	},
	turnkeeper.EventRoundStop: func(r *reading) {
		data := dataOf[turnevents.RoundStopData](r)
		r.is(r.at.Round, 0)
		if r.at.Round < 1 || r.at.Round > len(r.rounds) {
			r.wrong("the turn has %d rounds", len(r.rounds))
			return
		}
		round := r.rounds[r.at.Round-1]
		r.stopped[round.Number]++
		same(r, "number of stops", r.stopped[round.Number], 1)
		same(r, "finish reason", data.FinishReason, round.FinishReason)
		same(r, "model", data.Model, round.Model)
		same(r, "number of calls", data.Calls, len(round.Calls))
		if recipe := round.Recipe; recipe != nil {
			var reason turnkeeper.EpochReason
			if recipe.Start != nil {
				reason = recipe.Start.Reason
			}
			same(r, "reason of its epoch", r.epoch, reason)
		}
		same(r, "usage", data.Usage, round.Usage)
	},
	turnkeeper.EventAskOpened: func(r *reading) { r.ask(askings.Open) },
	turnkeeper.EventAskClosed: func(r *reading) { r.ask("") },
	turnkeeper.EventTurnComplete: func(r *reading) {
		r.end(r.turn.State == turnkeeper.TurnSucceeded || r.turn.State == turnkeeper.TurnDegraded)
	},
	turnkeeper.EventTurnError: func(r *reading) {
		r.end(r.turn.State == turnkeeper.TurnFailed || r.turn.State == turnkeeper.TurnCancelled)
	},
}

// call returns the call with a name such as round-1-tool-2.
func (r *reading) call(name string) *turnkeeper.ToolCall {
	if r.byName == nil {
		r.byName = map[string]*turnkeeper.ToolCall{}
		for _, round := range r.rounds {
			for i := range round.Calls {
				r.byName[round.Calls[i].Key.String()] = &round.Calls[i]
			}
		}
	}
	if r.byName[name] == nil {
		r.wrong("there is no call %s", name)
	}
	return r.byName[name]
}

// ask checks that there is an ask as the event tells it. state is empty if it is any but open.
func (r *reading) ask(state askings.State) {
	data := dataOf[turnevents.AskData](r)
	for _, a := range r.asks {
		told := turnevents.AskData{
			Ask: turnevents.NameOfAsk(a), Kind: a.Kind, Call: a.Call.String(), Tool: a.Tool, State: state,
			Reason: a.Reason,
		}
		if state == "" && a.Closed() {
			told.State = a.State
		}
		if told == data {
			r.is(a.Call.Round, 0)
			if state == askings.Open {
				r.asking[data.Ask] = true
				return
			}
			same(r, "an open ask", r.asking[data.Ask], true)
			delete(r.asking, data.Ask)
			return
		}
	}
	r.wrong("there is no such ask in %+v", r.asks)
}

// end checks the last event. fits reports whether the state of the turn is one of those that its type tells.
func (r *reading) end(fits bool) {
	data := dataOf[turnevents.TurnEndData](r)
	r.is(0, 0)
	same(r, "a fit of its type", fits, true)
	same(r, "state", data.State, r.turn.State)
	same(r, "stop reason", data.StopReason, r.turn.StopReason)
	same(r, "number of rounds", data.Rounds, len(r.rounds))
	same(r, "number of calls", data.Calls, len(callsOf(r.rounds)))
	same(r, "number", r.at.Seq, r.turn.LastSeq)
	// An end that no worker writes, of the turn of a lost worker or of a turn that waits and is cancelled, withdraws
	// its open asks without events (docs/events.md, ask_closed).
	if stop := r.turn.StopReason; len(r.asking) > 0 && stop != turnkeeper.StopWorkerLost &&
		(stop != turnkeeper.StopCancelled || !r.waited) {
		r.wrong("no event tells the end of the asks %v", slices.Sorted(maps.Keys(r.asking)))
	}
	if !data.Retry && r.reply != data.Reply {
		r.wrong("the reply is %q", r.reply)
	}
}

var (
	fullLine  = regexp.MustCompile(`Your context window is (\d+)% full`)
	readyLine = regexp.MustCompile(`(?m)^- \S+ \(id: .*retrieved \d+ times\)$`)
)

const noSize = "has no size"

// noticeFaults returns what is wrong with the numbers in the notice of a request: how full the window is, and how large
// the results are that the model can read by their handles.
func noticeFaults(r *turnkeeper.Recipe) (faults []string) {
	if full := fullLine.FindStringSubmatch(r.Notice); full != nil {
		want := min(100*r.Window.Corrected()/r.Window.Size, 100)
		// the notice itself counts too
		if got, err := strconv.Atoi(full[1]); err != nil || got < want-1 || got > want+1 {
			faults = append(faults, fmt.Sprintf("it says that the window is %s%% full; it is %d%%", full[1], want))
		}
	}
	for _, line := range readyLine.FindAllString(r.Notice, -1) {
		if !strings.Contains(line, " tokens, ") {
			faults = append(faults, fmt.Sprintf("%q ", line)+noSize)
		}
	}
	return faults
}
