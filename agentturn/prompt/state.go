// Package prompt builds the requests of a turn. An Input, which is a turn before a round,
// is fitted into the window of a model: that gives a Plan, which is written down as a
// Recipe, and the Request that is made of both. Rebuild makes a request again from the
// journal and its recipe. Estimates are corrected by what providers report.
//
// It must not know contexts, clocks, journals or models: what it returns depends on what
// it is given alone.
package prompt

import (
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
)

// A State makes the requests of one execution of a turn, and keeps what they are made of
// from one to the next. It belongs to one goroutine.
type State struct {
	Offer
	// Sizes are those of stored outputs, in tokens. The owner adds to it.
	Sizes map[turnkeeper.OutputID]int64

	turn     turnkeeper.TurnID
	def      *agentdef.Definition
	body     string
	history  []turnkeeper.Past
	older    int
	summary  turnkeeper.Summary
	learned  *Calibrations
	imitates map[pastCall]bool // by call, of those whose results were searched
	toolsets map[string]*toolset
	parts    map[string]bool // hashes of the request parts that are on record
	refused  *refusal        // a request that was too long for its model; nil: none, or not looked for yet

	summaryTried bool
	newSummary   *turnkeeper.Summary // made in this execution and not written yet
}

// NewState makes the State of a turn that goes on from a record.
func NewState(record turnkeeper.Record, d *agentdef.Definition, offer Offer, learned *Calibrations) *State {
	record = toldHistory(record, d)
	s := &State{
		Offer: offer, Sizes: map[turnkeeper.OutputID]int64{},
		turn: record.Turn.ID, def: d, body: record.Message.Body, history: record.History, older: record.Older, summary: record.Summary,
		learned: learned, imitates: map[pastCall]bool{}, toolsets: map[string]*toolset{}, parts: map[string]bool{},
	}
	for _, round := range record.Rounds {
		if round.Recipe != nil {
			s.parts[round.Recipe.Frame], s.parts[round.Recipe.Tools] = true, true
		}
	}
	return s
}

// A Model is a model that a request is for.
type Model struct {
	Provider string // as configured
	Name     string // the provider's own
	Window   int    // tokens
	Tokens   *Counts
}

func (m Model) key() modelKey { return modelKey{m.Provider, m.Name} }

// A Moment is a turn before a round.
type Moment struct {
	Rounds []turnkeeper.Round
	Final  bool // the round is announced as the last one
	// Age returns how long a call has been in the background.
	Age func(turnkeeper.ToolCall) time.Duration
}

// A Request fits the window of the model it is for.
type Request struct {
	inference.Request
	Recipe turnkeeper.Recipe
	Parts  []turnkeeper.RequestPart // that the recipe names
	Tokens int                      // corrected estimate of its input
	note   string                   // that the request was made with
}

// Build builds the request of a round for one model: the system prompt, as much of the earlier
// conversation as fits, the message, this turn's rounds so far, and the notice. It fails with
// an error of class context_overflow if the rest does not fit.
func (s *State) Build(m Model, at Moment) (Request, error) {
	in := s.input(m, at, s.notice(at, 100))
	p, ok := in.plan()
	if in.notice != "" {
		in.notice = s.notice(at, p.full()) // no longer than the one before it
		p, ok = in.plan()
	}
	if !ok {
		return Request{}, in.tooLong(p)
	}
	request, err := in.request(p)
	return Request{Request: request, Recipe: p.Recipe, Parts: p.parts, Tokens: p.tokens, note: p.note}, err
}

// input returns all that decides about a request to the model.
func (s *State) input(m Model, at Moment, notice string) Input {
	in := Input{
		turn: s.turn, def: s.def, body: s.body, history: s.history, rounds: at.Rounds, older: s.older, summary: s.summary,
		model: m, window: splitWindow(m.Window, s.def.MaxOutputTokens), limit: s.limit(m, at.Rounds), factor: s.factor(m, at.Rounds),
		note: s.standingNote(), tools: s.tools(at.Rounds, false), final: at.Final, notice: notice,
	}
	if n := len(in.history) - maxTold; n > 0 && s.Bounds.Summarise {
		in.history, in.older = in.history[n:], in.older+n
	}
	if s.Pages() && !s.useful(turnkeeper.ToolGetContinuation, CallsOf(at.Rounds)) {
		in.readers = s.tools(at.Rounds, true)
	}
	return in
}

func (s *State) standingNote() string {
	if s.Bounds.OutputHandles && s.Stored && len(s.def.Tools)+len(s.def.MCPServers) > 0 {
		return standingNote + handlesNote
	}
	return standingNote
}

// factor corrects estimates for a model: by what it reported in this turn, as
// the journal has it, and by what the process knew when the turn began with it.
// A turn that is resumed by another worker goes on with the same.
func (s *State) factor(m Model, rounds []turnkeeper.Round) float64 {
	var own calibration
	prior := 0.0
	for _, r := range recipesFor(rounds, m.key()) {
		if prior == 0 {
			prior = r.Window.Factor
		}
		if !r.Cut && r.Window.Reported > 0 {
			own = own.observe(r.Window.Estimate(), r.Window.Reported)
		}
	}
	if prior == 0 {
		prior = s.learned.of(m.key()).factor(1)
	}
	return own.factor(prior)
}

// limit returns the room that a refusal left; 0: none was. A turn that goes on
// under another worker knows it from its journal.
func (s *State) limit(m Model, rounds []turnkeeper.Round) int {
	if s.refused == nil {
		for _, round := range rounds {
			if r := round.Recipe; r != nil && r.Compacted > 0 {
				s.refused = &refusal{modelKey{r.Provider, r.Model}, r.Compacted}
			}
		}
	}
	if s.refused == nil || s.refused.modelKey != m.key() {
		return 0
	}
	return s.refused.room
}

// Refuse takes in why a request was refused. It reports whether that was for its length,
// and a smaller one may be tried: that is done once a turn.
func (s *State) Refuse(m Model, at Moment, refused Request, err error) bool {
	failure, isOne := errors.AsType[*inference.Error](err)
	if !isOne || failure.Class != inference.ClassContextOverflow || s.limit(m, at.Rounds) > 0 || s.refused != nil {
		return false
	}
	s.refused = &refusal{m.key(), roomAfter(*failure, refused)}
	return true
}

// Room returns what requests may take since one was refused.
func (s *State) Room() int { return s.refused.room }

// Answered completes the recipe of a request that was answered, and the parts that it
// names. It learns from what the provider reported of it.
func (s *State) Answered(m Model, rounds []turnkeeper.Round, request Request, res inference.Response) Request {
	sent := res.Sent
	if sent.SHA256 == "" {
		sent = inference.SentAs("", Canonical(request.Request))
	}
	part := turnkeeper.NewRequestPart(string(Canonical(frame{Note: request.note, Form: sent.Form})))
	request.Parts = append(request.Parts, part)
	r := &request.Recipe
	r.Frame, r.SHA256, r.Bytes = part.SHA256, sent.SHA256, sent.Bytes
	if r.Window.Reported = reportedTokens(res.Usage); r.Window.Reported == 0 {
		return request
	}
	if r.Cut = s.report(m, rounds, *r, res.Usage).cut(); !r.Cut {
		s.learned.observe(m.key(), r.Window)
	}
	return request
}

func (s *State) report(m Model, rounds []turnkeeper.Round, r turnkeeper.Recipe, used turnkeeper.Usage) report {
	seen := report{
		estimate: corrected(r.Window.Estimate(), r.Window.Factor), reported: used.InputTokens, cached: used.CachedTokens,
		fine: Exact(m.Tokens.Counter), most: s.learned.of(m.key()).most,
	}
	for _, past := range s.history {
		seen.most = max(seen.most, mostOf(recipesFor(past.Rounds, m.key())))
	}
	earlier := recipesFor(rounds, m.key())
	seen.most = max(seen.most, mostOf(earlier))
	if n := len(earlier); n > 0 && !earlier[n-1].Cut {
		seen.grown = max(0, seen.estimate-corrected(earlier[n-1].Window.Estimate(), r.Window.Factor))
	}
	return seen
}

// Unwritten returns those of the parts that no earlier round of the turn has stored.
func (s *State) Unwritten(parts []turnkeeper.RequestPart) (unwritten []turnkeeper.RequestPart) {
	for _, part := range parts {
		if !s.parts[part.SHA256] {
			s.parts[part.SHA256] = true
			unwritten = append(unwritten, part)
		}
	}
	return unwritten
}

// ToSummarise returns the earlier turns that the newest summary is to be extended by;
// none where it covers all that the request leaves out. So that not every turn needs a
// summary, all are taken but those that fill half of the room.
func (s *State) ToSummarise(m Model, at Moment, request Request) []turnkeeper.Past {
	history, covered := s.history, s.summary.UpTo
	omitted := len(history)
	for i, past := range history {
		if request.Recipe.FirstPast != 0 && past.TurnID == request.Recipe.FirstPast {
			omitted = i
		}
	}
	if !s.Bounds.Summarise || s.summaryTried || omitted == 0 || history[omitted-1].TurnID <= covered {
		return nil
	}
	at.Final = false
	in := s.input(m, at, "")
	in.history = history
	if in.room() < leastRoom {
		return nil
	}
	load, window := in.load(Plan{note: in.note, tools: in.tools.definitions})
	half := (int(float64(in.room())/in.factor) - window.Estimate()) / 2
	last := len(history)
	for kept := 0; last > omitted && len(history)-last < maxKept && kept+load.past[last-1].whole <= half; last-- {
		kept += load.past[last-1].whole
	}
	first := 0
	for first < last && history[first].TurnID <= covered {
		first++
	}
	return history[first:last]
}

// SummaryRequest asks for a summary of the turns, and of the summary of those before
// them. Long texts are told by their beginning and end, shorter and shorter until the
// request fits.
func (s *State) SummaryRequest(m Model, at Moment, turns []turnkeeper.Past) Request {
	s.summaryTried = true
	return summaryRequest(m, s.factor(m, at.Rounds), s.turn, s.def.Temperature, s.summary.Text, turns)
}

// SetSummary sets the summary that stands for what requests leave out.
func (s *State) SetSummary(made turnkeeper.Summary) { s.summary, s.newSummary = made, &made }

// TakeSummary returns a summary that was made and is not written yet; nil: none.
func (s *State) TakeSummary() *turnkeeper.Summary {
	made := s.newSummary
	s.newSummary = nil
	return made
}
