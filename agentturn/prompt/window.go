package prompt

import (
	"turnkeeper"
	"turnkeeper/agentdef"
)

// Defaults of the context window, in tokens.
const (
	// DefaultWindow is the context window of an unknown model.
	DefaultWindow = 32768
	defaultAnswer = agentdef.DefaultOutputTokens
	// One part in safetyShare of a window stays free, because counts are estimates.
	safetyShare = 20
)

// splitWindow reserves tokens of a model's window for its answer, at most half of it, and
// for safety. 0 means the default, for window and answer.
func splitWindow(window, answer int) turnkeeper.Window {
	if window <= 0 {
		window = DefaultWindow
	}
	if answer <= 0 {
		answer = defaultAnswer
	}
	return turnkeeper.Window{Size: window, Answer: min(answer, window/2), Safety: window / safetyShare}
}

// Room returns the number of tokens of a window that a request may take if so many are
// reserved for the answer. 0 means the default, for window and answer.
func Room(window, answer int) int { return splitWindow(window, answer).Room() }

// A load holds the sizes of the parts of a request, in tokens.
type load struct {
	fixed  int         // parts that are always sent: system prompt, tools, message, notice
	past   []pastLoad  // earlier turns, oldest first
	note   int         // of the note that earlier turns are not shown; 0: there is no note
	older  bool        // there are earlier turns that are not in past
	rounds []roundLoad // of this turn, oldest first
}

// A pastLoad is the size of an earlier turn: whole, and with lines in place of its results.
type pastLoad struct{ whole, lean int }

// A roundLoad is the size of a round's answer with its calls, and of their results.
type roundLoad struct {
	answer  int
	results []resultLoad
}

// A resultLoad is the size of a tool result: whole, and of the line that may replace it.
type resultLoad struct{ whole, line int }

// A fitting says which parts of a load are sent.
type fitting struct {
	firstPast  int      // earlier turns before this index are left out
	firstWhole int      // earlier turns before this index are sent without their results
	noted      bool     // a note says that turns are left out
	dropped    [][]bool // by round and call of this turn: a line replaces the result
	history    int      // tokens of the earlier turns
	turn       int      // tokens of this turn's rounds
	tokens     int      // tokens of the request
}

// fit fits a load into the room, and reports whether it fits. If all of it does not, it is made to take half of the
// room that is left beside its fixed parts, so that the requests after it have room too. This turn has priority: lines
// replace its results, the oldest first; those of the last round, which the model has not seen, only if the room
// demands it. The earlier turns share the rest of the half, or, if that is more, a quarter of what this turn leaves:
// lines replace the results of the oldest ones first, then the oldest turns are left out; the newest one stays if the
// room allows it. A call and its result are never separated.
func fit(room int, l load) (fitting, bool) {
	if f, ok := fitTurn(room, l, 0); ok && f.fitPast(room, l) && f.firstPast == 0 && f.firstWhole == 0 {
		return f, true
	}
	half := l.fixed + (room-l.fixed)/2
	f, _ := fitTurn(half, l, len(l.rounds)-1)
	half = max(half, f.tokens+(room-f.tokens)/4)
	if f.tokens > room {
		var ok bool
		if f, ok = fitTurn(room, l, len(l.rounds)); !ok {
			f.firstPast, f.firstWhole = len(l.past), len(l.past)
			return f, false
		}
		half = room
	}
	if n := len(l.past); n > 0 { // the newest earlier turn stays, if it can
		half = max(half, min(room, f.tokens+l.note+l.past[n-1].lean))
	}
	f.fitPast(half, l)
	return f, true
}

// fitTurn returns a fitting without earlier turns. Lines replace results of the first rounds, so many as evictable
// says, until the request has room.
func fitTurn(room int, l load, evictable int) (fitting, bool) {
	f := fitting{dropped: make([][]bool, len(l.rounds)), tokens: l.fixed}
	for i, round := range l.rounds {
		f.dropped[i] = make([]bool, len(round.results))
		f.tokens += round.answer
		for _, result := range round.results {
			f.tokens += result.whole
		}
	}
	for i, round := range l.rounds[:max(0, evictable)] {
		for j, result := range round.results {
			if f.tokens > room && result.line < result.whole {
				f.dropped[i][j] = true
				f.tokens += result.line - result.whole
			}
		}
	}
	f.turn = f.tokens - l.fixed
	return f, f.tokens <= room
}

// fitPast adds the earlier turns to a fitting, and a note if some are left out and there is room for it. It reports
// whether the result fits.
func (f *fitting) fitPast(room int, l load) bool {
	own := f.tokens
	f.choosePast(room-own, l.past)
	if (f.firstPast > 0 || l.older) && l.note > 0 && own+l.note <= room {
		f.noted = true
		f.choosePast(room-own-l.note, l.past)
		f.history += l.note
	}
	f.tokens += f.history
	return f.tokens <= room
}

func (f *fitting) choosePast(room int, past []pastLoad) {
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
	// Leaving out a long turn may have made room for results of later turns.
	for f.firstWhole > f.firstPast && f.history+past[f.firstWhole-1].whole-past[f.firstWhole-1].lean <= room {
		f.firstWhole--
		f.history += past[f.firstWhole].whole - past[f.firstWhole].lean
	}
}
