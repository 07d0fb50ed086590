// Package prompt builds the requests of a turn. An Input, the state of a turn before a
// round, is fitted into the window of a model. The result is a Plan, which is stored as a
// Recipe, and a Request. Rebuild builds a request again from the journal and its recipe.
// Token estimates are corrected by the counts that providers report.
//
// The package uses no context, clock, journal or model: its results depend only on its
// arguments.
package prompt

import (
	"errors"
	"time"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// A State builds the requests of one execution of a turn. It belongs to one goroutine.
type State struct {
	Offer
	// Sizes holds the sizes of stored outputs, in tokens. The owner adds to it.
	Sizes map[turnkeeper.OutputID]int64

	turn     turnkeeper.TurnID
	def      *agentdef.Definition
	body     string
	history  []turnlog.Past
	older    int
	summary  turnlog.Summary
	learned  *Calibrations
	imitates map[turnkeeper.CallKey]bool // whether a call's result imitates the program, if it was searched
	sizes    pastSizes                   // of the history
	toolset  *toolset                    // of every request; nil: not made yet
	parts    map[string]bool             // hashes of the stored request parts
	// of a request that was too long for its model; nil: none, or not read from the journal yet
	refused *refusal
	records map[modelKey]recordForm

	pastSearched bool     // for imitations
	pastLines    []string // found then

	summaryTried bool
	newSummary   *turnlog.Summary // made in this execution, not written yet
}

// NewState returns the State of a turn that starts or continues from a record.
func NewState(record *turnlog.Record, d *agentdef.Definition, offer Offer, learned *Calibrations) *State {
	record = shownHistory(record, d)
	s := &State{
		Offer: offer, Sizes: map[turnkeeper.OutputID]int64{},
		turn: record.Turn.ID, def: d, body: record.Message.Body, history: record.History, older: record.Older,
		summary: record.Summary,
		learned: learned, imitates: map[turnkeeper.CallKey]bool{}, sizes: pastSizes{}, parts: map[string]bool{},
		records: map[modelKey]recordForm{},
	}
	for _, round := range record.Rounds {
		if round.Recipe != nil {
			s.parts[round.Recipe.Frame], s.parts[round.Recipe.Tools] = true, true
		}
	}
	return s
}

// A Model describes the model of a request.
type Model struct {
	Provider string // as configured
	Name     string // the provider's name for it
	Window   int    // tokens
	Tokens   *Counts
}

func (m Model) key() modelKey { return modelKey{m.Provider, m.Name} }

// A Moment is the state of a turn before a round.
type Moment struct {
	Rounds []turnkeeper.Round
	Final  bool // announce the round as the last one
	Finish bool // because somebody wants the turn to finish
	// Unparsed says that the model wrote a tool call as text in its last answer, which is on no record.
	Unparsed bool
	// Age returns how long a call has been in the background.
	Age func(turnkeeper.ToolCall) time.Duration
}

// A Request is a request that fits the window of its model.
type Request struct {
	inference.Request
	Recipe turnkeeper.Recipe
	Parts  []turnlog.RequestPart // named by the recipe
	Tokens int                   // corrected estimate of the input
	note   string                // follows the system prompt
}

// Build builds the request of a round for one model: the system prompt, as much of the earlier
// conversation as fits, the message, this turn's rounds so far, and the notice. It fails with
// an error of class context_overflow if the rest does not fit.
func (s *State) Build(m Model, at Moment) (Request, error) {
	in := s.input(m, at, s.notice(at, 100))
	p, ok := in.plan()
	if in.notice != "" {
		in.notice = s.notice(at, p.full()) // not longer than with 100
		p, ok = in.plan()
	}
	if !ok {
		return Request{}, in.tooLong(p)
	}
	request, err := in.request(p)
	return Request{Request: request, Recipe: p.Recipe, Parts: p.parts, Tokens: p.tokens, note: p.note}, err
}

// input returns the Input of a request to the model.
func (s *State) input(m Model, at Moment, notice string) Input {
	in := Input{
		turn: s.turn, def: s.def, body: s.body, history: s.history, rounds: at.Rounds, sizes: s.sizes, older: s.older,
		summary: s.summary,
		model:   m, window: splitWindow(m.Window, s.def.MaxOutputTokens), limit: s.limit(m, at.Rounds),
		factor: s.factor(m, at.Rounds),
		record: s.record(m, at.Rounds), note: s.standingNote(), tools: s.tools(), final: at.Final, notice: notice,
	}
	if n := len(in.history) - maxShownPast; n > 0 && s.Bounds.Summarise {
		in.history, in.older = in.history[n:], in.older+n
	}
	return in
}

func (s *State) standingNote() string {
	if s.Bounds.OutputHandles && s.Stored && len(s.def.Tools)+len(s.def.MCPServers) > 0 {
		return standingNote + handlesNote
	}
	return standingNote
}

// factor returns the factor that corrects estimates for a model: from the counts that the
// model reported in this turn, and the process's calibration when the turn first used it.
// Both are in the journal, so another worker that resumes the turn uses the same factor.
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

// limit returns the room that a refusal of the model left, or 0 if there was none. If
// another worker was refused, the journal has it.
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

// Refuse records the error of a request. It reports whether the provider refused the
// request as too long and a smaller one may be tried, which is done once per turn.
func (s *State) Refuse(m Model, at Moment, refused Request, err error) bool {
	failure, isOne := errors.AsType[*inference.Error](err)
	if !isOne || failure.Class != inference.ClassContextOverflow || s.limit(m, at.Rounds) > 0 || s.refused != nil {
		return false
	}
	s.refused = &refusal{m.key(), roomAfter(*failure, refused)}
	return true
}

// Room returns the maximum size of a request, in tokens, after Refuse has returned true.
func (s *State) Room() int { return s.refused.room }

// Answered returns an answered request with its recipe and parts completed, and calibrates
// later estimates by the reported usage.
func (s *State) Answered(m Model, rounds []turnkeeper.Round, request Request, res inference.Response) Request {
	sent := res.Sent
	if sent.SHA256 == "" {
		sent = inference.SentAs("", Canonical(request.Request))
	}
	part := turnlog.NewRequestPart(string(Canonical(frame{Note: request.note, Form: sent.Form})))
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
	rep := report{
		estimate: corrected(r.Window.Estimate(), r.Window.Factor), tools: corrected(r.Window.Tools, r.Window.Factor),
		reported: used.InputTokens, cached: used.CachedTokens,
		exact: Exact(m.Tokens.Counter), largest: s.learned.of(m.key()).largest,
	}
	for _, past := range s.history {
		rep.largest = max(rep.largest, largestOf(recipesFor(past.Rounds, m.key())))
	}
	earlier := recipesFor(rounds, m.key())
	rep.largest = max(rep.largest, largestOf(earlier))
	if n := len(earlier); n > 0 && !earlier[n-1].Cut {
		rep.grown = max(0, rep.estimate-corrected(earlier[n-1].Window.Estimate(), r.Window.Factor))
	}
	return rep
}

// Unwritten returns the parts that no earlier round of the turn has stored.
func (s *State) Unwritten(parts []turnlog.RequestPart) (unwritten []turnlog.RequestPart) {
	for _, part := range parts {
		if !s.parts[part.SHA256] {
			s.parts[part.SHA256] = true
			unwritten = append(unwritten, part)
		}
	}
	return unwritten
}

// ToSummarise returns the earlier turns to add to the summary, or none if the summary
// covers everything that the request leaves out. It returns all turns but the newest,
// which fill half of the room: later turns of the conversation then need no new summary
// for a while.
func (s *State) ToSummarise(m Model, at Moment, request Request) []turnlog.Past {
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
	at.Final, at.Finish = false, false
	in := s.input(m, at, "")
	in.history = history
	if in.room() < minSummaryRoom {
		return nil
	}
	load, window := in.load(Plan{note: in.note, tools: in.tools.definitions})
	half := (int(float64(in.room())/in.factor) - window.Estimate()) / 2
	last := len(history)
	for kept := 0; last > omitted && len(history)-last < maxUnsummarised && kept+
		load.past[last-1].whole <= half; last-- {
		kept += load.past[last-1].whole
	}
	first := 0
	for first < last && history[first].TurnID <= covered {
		first++
	}
	return history[first:last]
}

// SummaryUnsent allows another request for a summary: the one that was made was not sent.
func (s *State) SummaryUnsent() { s.summaryTried = false }

// SummaryRequest returns a request for a summary of the turns and of the present summary.
// It shortens long texts until the request fits.
func (s *State) SummaryRequest(m Model, at Moment, turns []turnlog.Past) Request {
	s.summaryTried = true
	return summaryRequest(m, s.factor(m, at.Rounds), s.turn, s.def.Temperature, s.summary.Text, turns)
}

// SetSummary sets the summary of the turns that requests leave out.
func (s *State) SetSummary(made turnlog.Summary) { s.summary, s.newSummary = made, &made }

// TakeSummary returns the summary that is not written yet, once, or nil.
func (s *State) TakeSummary() *turnlog.Summary {
	made := s.newSummary
	s.newSummary = nil
	return made
}
