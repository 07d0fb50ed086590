package journal

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"turnkeeper"
	"turnkeeper/internal/arguments"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/internal/dbrow"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// callStates holds the rounds of a turn with their calls, as in its journal. The database does not check the states of
// calls, so the writer checks each entry here. The fence ensures that nobody else has written.
type callStates struct {
	rounds   []turnkeeper.Round
	planned  []turnkeeper.ToolCall // those of the entry's round, before the entry starts or answers any
	results  []storedResult        // those of the entry
	released []turnkeeper.CallKey  // awaited calls that the entry has ended
}

// statesOf returns the calls of rounds with their states. It does not change them.
func statesOf(rounds []turnkeeper.Round) callStates { return callStates{rounds: slices.Clone(rounds)} }

// call returns a call, or nil.
func (l *callStates) call(k turnkeeper.CallKey) *turnkeeper.ToolCall {
	if k.Round < 1 || k.Round > len(l.rounds) || k.Ordinal < 1 || k.Ordinal > len(l.rounds[k.Round-1].Calls) {
		return nil
	}
	return &l.rounds[k.Round-1].Calls[k.Ordinal-1]
}

// with returns the states after an entry. It fails if the state of a call does not allow the entry's start or result.
func (l *callStates) with(e turnlog.Entry, clean func(string) string) (callStates, error) {
	after := callStates{rounds: slices.Clone(l.rounds)}
	for i := range after.rounds {
		after.rounds[i].Calls = slices.Clone(after.rounds[i].Calls)
	}
	var results []storedResult
	if err := after.answer(e.Verdicts, clean, &results); err != nil {
		return after, err
	}
	if r := e.Round; r != nil {
		if r.Number != len(after.rounds)+1 {
			return after, pg.Refuse(turnkeeper.ErrJournalMoved,
				"the journal has moved on: it has %d rounds, and the entry has round %d", len(after.rounds), r.Number)
		}
		round := planned(*r, clean)
		after.planned = slices.Clone(round.Calls)
		after.rounds = append(after.rounds, round)
	}
	for _, s := range e.Starts {
		call := after.call(s.Key)
		if call == nil || call.Starts != s.Attempt-1 || call.State.Answered() {
			return after, pg.Refuse(turnkeeper.ErrJournalMoved, "the journal has moved on: a call was started before")
		}
		call.Starts, call.Nonce, call.StartedAt, call.State = s.Attempt, s.Nonce, time.Now(), turnkeeper.CallStarted
		call.Awaited = call.Awaited || s.Detached > 0 || s.Spawn != nil
		s.RunArgs = clean(s.RunArgs)
		s.SetArguments(call)
	}
	if err := after.answer(e.Results, clean, &results); err != nil {
		return after, err
	}
	after.results = results
	return after, nil
}

// answer records results. A started call takes a result only from its newest start, unless that is a verdict. A call
// that goes to the background (CallRunning) has not ended, and keeps the output that the model has seen.
func (l *callStates) answer(results []turnlog.CallResult, clean func(string) string, stored *[]storedResult) error {
	for _, r := range results {
		call := l.call(r.Key)
		// The start of an awaited call may have been replaced by one without a grant.
		if call == nil || call.State.Answered() || r.Nonce != call.Nonce && r.State != turnkeeper.CallUnknown &&
			!call.Awaited {
			return pg.Refuse(turnkeeper.ErrJournalMoved, "the journal has moved on: a call was answered before")
		}
		if call.State != r.State {
			if err := call.State.MoveTo(r.State); err != nil {
				return err
			}
		}
		if call.Awaited && r.State != turnkeeper.CallRunning {
			l.released = append(l.released, r.Key)
		}
		call.State, call.Shown, call.Preview = r.State, clean(r.Shown), clean(r.Preview)
		call.Duration, call.Usage = 0, r.Usage
		if r.State != turnkeeper.CallRunning {
			call.Duration = max(r.Duration, 0).Truncate(time.Millisecond)
		}
		if r.Output != nil {
			call.OutputID = r.Output.ID
		} else if r.OutputID != "" {
			call.OutputID = r.OutputID
		}
		*stored = append(*stored, storedResult{
			Round: r.Key.Round, Ordinal: r.Key.Ordinal, State: call.State, Shown: call.Shown,
			Preview:  unless(call.Preview, call.Shown),
			OutputID: call.OutputID, DurationMS: call.Duration.Milliseconds(), storedUsage: usageOf(call.Usage),
		})
	}
	return nil
}

// planned returns a round with its text as stored.
func planned(r turnkeeper.Round, clean func(string) string) turnkeeper.Round {
	calls := make([]turnkeeper.ToolCall, len(r.Calls))
	for i, c := range r.Calls {
		c.WireID, c.ProviderID, c.Name, c.Arguments, c.RawArgs = clean(c.WireID), clean(c.ProviderID), clean(c.Name),
			clean(c.Arguments), clean(c.RawArgs)
		c.Shown, c.Preview, c.Effect = clean(c.Shown), clean(c.Preview), orOnce(c.Effect)
		calls[i] = c
	}
	r.Calls = calls
	return r
}

// The JSON that the journal stores. The views rounds, call_results and calls use the same field names.
type (
	storedUsage struct {
		InputTokens      int64 `json:"input_tokens,omitempty"`
		OutputTokens     int64 `json:"output_tokens,omitempty"`
		CachedTokens     int64 `json:"cached_tokens,omitempty"`
		CacheWriteTokens int64 `json:"cache_write_tokens,omitempty"`
		ReasoningTokens  int64 `json:"reasoning_tokens,omitempty"`
		UsageEstimated   bool  `json:"usage_estimated,omitempty"`
	}
	storedAnswer struct {
		Version      int16  `json:"version"`
		Charged      bool   `json:"charged,omitempty"`
		Provider     string `json:"provider"`
		Model        string `json:"model"`
		Attempts     int    `json:"attempts"`
		LatencyMS    int64  `json:"latency_ms"`
		FinishReason string `json:"finish_reason"`
		storedUsage
	}
	storedCall struct {
		Ordinal    int                  `json:"ordinal"`
		WireID     string               `json:"wire_id"`
		ProviderID *string              `json:"provider_id,omitempty"` // nil: equal to WireID
		Name       string               `json:"name"`
		Arguments  string               `json:"arguments"`
		RawArgs    string               `json:"raw_args,omitempty"`
		ArgsHash   string               `json:"args_hash,omitempty"` // empty: that of Name and Arguments
		Effect     turnkeeper.Effect    `json:"effect"`
		Paging     bool                 `json:"paging,omitempty"`
		State      turnkeeper.CallState `json:"state"`
		Shown      string               `json:"shown,omitempty"`
		Preview    *string              `json:"preview,omitempty"` // nil: equal to Shown
	}
	storedResult struct {
		Round      int                  `json:"round"`
		Ordinal    int                  `json:"ordinal"`
		State      turnkeeper.CallState `json:"state"`
		Shown      string               `json:"shown"`
		Preview    *string              `json:"preview,omitempty"` // nil: equal to Shown
		OutputID   turnkeeper.OutputID  `json:"output_id,omitempty"`
		DurationMS int64                `json:"duration_ms"`
		storedUsage
	}
)

func usageOf(u turnkeeper.Usage) storedUsage {
	return storedUsage{u.InputTokens, u.OutputTokens, u.CachedTokens, u.CacheWriteTokens, u.ReasoningTokens,
		u.Estimated}
}

// plannedJSON encodes the calls of an answer; nil: none.
func plannedJSON(calls []turnkeeper.ToolCall) []byte {
	if len(calls) == 0 {
		return nil
	}
	stored := make([]storedCall, len(calls))
	for i, c := range calls {
		stored[i] = storedCall{
			c.Key.Ordinal, c.WireID, unless(c.ProviderID, c.WireID), c.Name, c.Arguments, c.RawArgs, c.ArgsHash,
			c.Effect, c.Paging, c.State, c.Shown,
			unless(c.Preview, c.Shown),
		}
		if c.ArgsHash == arguments.Hash(c.Name, c.Arguments) {
			stored[i].ArgsHash = ""
		}
	}
	return encode(stored)
}

// unless returns a text to store, or nil if it equals another one.
func unless(text, other string) *string {
	if text == other {
		return nil
	}
	return &text
}

// orElse returns *p, or other if p is nil. It is the inverse of unless.
func orElse(p *string, other string) string {
	if p == nil {
		return other
	}
	return *p
}

// pastRounds returns the rounds of an ended turn as a history shows them. It returns none if only a newer program can
// read them. Message and reply are plain text in any version.
func pastRounds(writes []dbsqlc.PastJournalsRow) []turnkeeper.Round {
	var l callStates
	for _, w := range writes {
		answers, err := pastAnswers(w)
		if err != nil {
			return nil
		}
		for _, a := range answers {
			r, ok := pastRound(a)
			if !ok {
				return nil
			}
			l.rounds = append(l.rounds, r)
		}
		var results []storedResult
		if decode([]byte(w.Results), &results) != nil {
			return nil
		}
		for _, r := range results {
			if call := l.call(turnkeeper.CallKey{Round: r.Round, Ordinal: r.Ordinal}); call != nil {
				call.State, call.Shown, call.Preview, call.OutputID = r.State, r.Shown,
					orElse(r.Preview, r.Shown), r.OutputID
			}
		}
	}
	for _, r := range l.rounds {
		for _, c := range r.Calls {
			if !knownCall(string(c.State), string(c.Effect)) {
				return nil
			}
		}
	}
	return l.rounds
}

// pastAnswers returns the answers of a write, oldest first.
func pastAnswers(w dbsqlc.PastJournalsRow) (answers []storedRound, err error) {
	err = decode([]byte(w.Earlier), &answers)
	if w.Round > 0 {
		answers = append(answers, storedRound{Number: w.Round, Answer: []byte(w.Answer), Calls: []byte(w.Calls),
			Text: w.Text, Raw: &w.Raw, Request: []byte(w.Request)})
	}
	return answers, err
}

// pastRound returns an answer as a history shows it. ok is false if this program cannot read it.
func pastRound(s storedRound) (_ turnkeeper.Round, ok bool) {
	var answer storedAnswer
	var calls []storedCall
	if decode(s.Answer, &answer) != nil || decode(s.Calls, &calls) != nil || answer.Version > journalVersion {
		return turnkeeper.Round{}, false
	}
	r := turnkeeper.Round{Number: int(s.Number), Provider: answer.Provider, Text: s.Text,
		Recipe: dbrow.Recipe(s.Request)}
	if s.Raw != nil && *s.Raw != "" {
		r.Raw = []byte(*s.Raw)
	}
	for _, c := range calls {
		r.Calls = append(r.Calls, turnkeeper.ToolCall{
			Key: turnkeeper.CallKey{Round: r.Number, Ordinal: c.Ordinal}, WireID: c.WireID, Name: c.Name,
			Arguments: c.Arguments,
			Effect:    c.Effect, State: c.State, Shown: c.Shown, Preview: orElse(c.Preview, c.Shown),
		})
	}
	return r, true
}

// decode decodes stored JSON. Empty text stands for no value.
func decode(stored []byte, into any) error {
	if len(stored) == 0 {
		return nil
	}
	return json.Unmarshal(stored, into)
}

// encode encodes a value as JSON. Its text must be clean.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // no value of these types is refused
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
