package prompt

import (
	"turnkeeper"
	"turnkeeper/agentdef"
)

// Defaults of the context window, in tokens.
const (
	// DefaultWindow is the context window of a model of which nothing is known.
	DefaultWindow = 32768
	defaultAnswer = agentdef.DefaultOutputTokens
	// safetyShare is the part of a window that is left free, since counts are
	// estimates: one in twenty.
	safetyShare = 20
)

// splitWindow splits a model's window when so many tokens are reserved for its
// answer. 0: the default of either. An answer is never given more than half.
func splitWindow(window, answer int) turnkeeper.Window {
	if window <= 0 {
		window = DefaultWindow
	}
	if answer <= 0 {
		answer = defaultAnswer
	}
	return turnkeeper.Window{Size: window, Answer: min(answer, window/2), Safety: window / safetyShare}
}

// Room returns how many tokens of a window are left to a request when so many are
// reserved for its answer. 0: the default of either.
func Room(window, answer int) int { return splitWindow(window, answer).Room() }

// A load is what a request would hold, in tokens.
type load struct {
	fixed  int         // what is always sent: system prompt, tools, message, notice
	past   []pastLoad  // earlier turns, oldest first
	left   int         // what it takes to say that earlier turns are not shown; 0: it is not said
	older  bool        // there are more earlier turns than past
	rounds []roundLoad // of this turn, oldest first
}

// A pastLoad is an earlier turn: whole, and with lines in the place of its
// results.
type pastLoad struct{ whole, lean int }

// A roundLoad is a round's answer with its calls, and a result a call.
type roundLoad struct {
	answer  int
	results []resultLoad
}

// A resultLoad is a tool result: whole, and as the line that may stand for it.
type resultLoad struct{ whole, line int }

// A fitting says how a load goes into a window.
type fitting struct {
	firstPast  int      // earlier turns before this one are left out
	firstWhole int      // those before this one are told without their results
	told       bool     // that turns are left out
	dropped    [][]bool // of this turn, by round and call: the line stands for the result
	history    int      // tokens of the earlier turns
	turn       int      // tokens of this turn's rounds
	tokens     int      // what the request takes
}

// fit makes a load fit into the room, and says whether it does. This turn goes
// first: where it alone is too much, its results give way to their lines, the
// oldest first. What is left is for the earlier turns: the oldest lose their
// results first; where that is not enough the oldest are left out, without a
// gap. A call never goes without its result, or a result without its call.
func fit(room int, l load) (fitting, bool) {
	f := fitting{dropped: make([][]bool, len(l.rounds))}
	f.fitTurn(room-l.fixed, l.rounds)
	f.tokens = l.fixed + f.turn
	if f.tokens > room {
		f.firstPast, f.firstWhole = len(l.past), len(l.past)
		return f, false
	}
	f.fitPast(room-f.tokens, l.past)
	if (f.firstPast > 0 || l.older) && l.left > 0 && f.tokens+l.left <= room {
		f.told = true
		f.fitPast(room-f.tokens-l.left, l.past)
		f.history += l.left
	}
	f.tokens += f.history
	return f, true
}

func (f *fitting) fitTurn(room int, rounds []roundLoad) {
	for i, round := range rounds {
		f.dropped[i] = make([]bool, len(round.results))
		f.turn += round.answer
		for _, result := range round.results {
			f.turn += result.whole
		}
	}
	for i, round := range rounds {
		for j, result := range round.results {
			if f.turn > room && result.line < result.whole {
				f.dropped[i][j] = true
				f.turn += result.line - result.whole
			}
		}
	}
}

func (f *fitting) fitPast(room int, past []pastLoad) {
	f.firstPast, f.firstWhole, f.history = 0, 0, 0
	for _, turn := range past {
		f.history += turn.whole
	}
	for ; f.firstWhole < len(past) && f.history > room; f.firstWhole++ {
		f.history += past[f.firstWhole].lean - past[f.firstWhole].whole
	}
	for ; f.history > room; f.firstPast++ {
		f.history -= past[f.firstPast].lean
	}
	// What an old long turn leaves when it goes may be enough for results again.
	for f.firstWhole > f.firstPast && f.history+past[f.firstWhole-1].whole-past[f.firstWhole-1].lean <= room {
		f.firstWhole--
		f.history += past[f.firstWhole].whole - past[f.firstWhole].lean
	}
}
