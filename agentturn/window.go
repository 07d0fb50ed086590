package agentturn

import "turnkeeper/agentdef"

// Defaults of the context window, in tokens.
const (
	defaultWindow = 32768
	defaultAnswer = agentdef.DefaultOutputTokens
	// safetyShare is the part of a window that is left free, since counts are
	// estimates: one in twenty.
	safetyShare = 20
)

// room is how many tokens a request may take of a model's window, when so many
// are reserved for its answer. 0: the default of either. An answer is never
// given more than half.
func room(window, answer int) int {
	if window <= 0 {
		window = defaultWindow
	}
	if answer <= 0 {
		answer = defaultAnswer
	}
	return window - min(answer, window/2) - window/safetyShare
}

// A load is what a request would hold, in tokens.
type load struct {
	fixed  int         // what is always sent: system prompt, tools, message, notice
	past   []int       // earlier turns, oldest first; each is sent whole or not at all
	rounds []roundLoad // of this turn, oldest first
}

// A roundLoad is a round's answer with its calls, and a result a call.
type roundLoad struct {
	answer  int
	results []resultLoad
}

// A resultLoad is a tool result: whole, and as the line that may stand for it.
type resultLoad struct{ whole, line int }

// A fitting says how a load goes into a window.
type fitting struct {
	firstPast int      // earlier turns before this one are left out
	dropped   [][]bool // by round and call: the line stands for the result
	tokens    int      // what the request takes
}

// fit makes a load fit into the room, and says whether it does. This turn goes
// first: where it alone is too much, its results give way to their lines, the
// oldest first. Earlier turns take what is left, the newest first, without a
// gap. A call never goes without its result, or a result without its call.
func fit(room int, l load) (fitting, bool) {
	f := fitting{firstPast: len(l.past), tokens: l.fixed, dropped: make([][]bool, len(l.rounds))}
	for i, round := range l.rounds {
		f.dropped[i] = make([]bool, len(round.results))
		f.tokens += round.answer
		for _, result := range round.results {
			f.tokens += result.whole
		}
	}
	for i, round := range l.rounds {
		for j, result := range round.results {
			if f.tokens > room && result.line < result.whole {
				f.dropped[i][j] = true
				f.tokens += result.line - result.whole
			}
		}
	}
	if f.tokens > room {
		return f, false
	}
	for f.firstPast > 0 && f.tokens+l.past[f.firstPast-1] <= room {
		f.firstPast--
		f.tokens += l.past[f.firstPast]
	}
	return f, true
}
