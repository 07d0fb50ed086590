// Package prompt builds the requests of a turn. Requests are appended: within an epoch, each is the newest one on
// record with messages added at its end. If that does not fit the model's window, or the head of the request has
// changed, a new epoch begins, which is fitted into the window. A Recipe says what is new in a request, and how an
// epoch began; with it, Rebuild builds a request again from the journal. Token estimates are corrected by the counts
// that providers report.
//
// The package uses no context, clock, journal or model: its results depend only on its
// arguments.
package prompt

import (
	"cmp"
	"errors"
	"slices"
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

	source
	history  []turnlog.Past
	older    int    // number of turns of the conversation before the history
	chain    string // the turn's schedule, if it sees only its own history
	visible  string // hash of what the definition says of the head of a request
	summary  turnlog.Summary
	memory   *Memory
	toolset  *toolset                      // of a new epoch; nil: not made yet
	epochs   map[turnkeeper.EpochID]*epoch // that were looked up; nil: not stored
	parts    parts
	imitates map[callKey]bool // whether the result of a call that was searched imitates the program
	pasts    pasts
	refusals refusals
	made     madeSummary
}

// NewState returns the State of a turn that starts or continues from a record.
func NewState(record *turnlog.Record, d *agentdef.Definition, offer Offer, memory *Memory) *State {
	chain := chainOf(record, d)
	record = shownHistory(record, d)
	from := sourceOf(record, d)
	s := &State{
		Offer: offer, Sizes: map[turnkeeper.OutputID]int64{},
		source: from, history: record.History, older: record.Older,
		chain: chain, visible: visible(d, offer), summary: record.Summary,
		memory: memory, epochs: map[turnkeeper.EpochID]*epoch{}, pasts: pasts{key: historyKey{from.cacheKey, chain},
			sizes: map[sizeKey]pastLoad{}},
		parts:    parts{contents: map[string]string{}, asked: map[string]bool{}, written: map[string]bool{}},
		imitates: map[callKey]bool{},
		refusals: refusals{rewritten: map[modelKey]*rewriting{}},
	}
	for _, round := range record.Rounds {
		if round.Recipe != nil {
			s.parts.stored(*round.Recipe)
		}
	}
	return s
}

// A Model describes the model of a request.
type Model struct {
	Provider string // as configured
	Name     string // the provider's name for it
	Form     string // how the provider encodes requests, see inference.Sent; empty: unknown
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
	epoch  turnkeeper.Epoch      // to which it belongs
}

// Build builds the request of a round for one model. It extends the newest request of the epoch: by what happened
// since, and by a notice if there is something to say. If the epoch has ended, or has no room, it begins another one:
// the system prompt, as much of the earlier conversation as fits, the message, this turn's rounds so far, and the
// notice. It fails with an error of class context_overflow if the rest does not fit.
func (s *State) Build(m Model, at Moment) (Request, error) {
	e, reason, ended := s.current(m, at.Rounds)
	if !ended {
		request, fits, err := s.extend(m, at, e)
		if fits || err != nil {
			return request, err
		}
		reason = EpochRoom
	}
	return s.begin(m, at, reason, e)
}

// extend returns the next request of an epoch, and whether it fits the window.
func (s *State) extend(m Model, at Moment, e *epoch) (request Request, fits bool, err error) {
	shown, _ := e.shown(s.history)
	p := s.plan(m, at, e)
	p.window.System = p.message(e.head.system)
	past, err := p.pastMessages(shown)
	if err != nil {
		return Request{}, false, err
	}
	p.window.History = past.tokens
	p.window.Turn += p.messages(p.appendRounds(nil, s.turn, at.Rounds))
	if request, err = p.request(shown, past); err == nil {
		fits = request.Tokens <= p.room()
		s.memory.keep(s.pasts.key, *past)
	}
	return request, fits, err
}

// begin returns the first request of an epoch. before is the one before it, or nil.
func (s *State) begin(m Model, at Moment, reason turnkeeper.EpochReason, before *epoch) (Request, error) {
	e := s.newEpoch(m, at, reason)
	s.pasts.newest = written{} // it may show turns that the epoch before did not
	history, older := s.kept(before)
	p := s.plan(m, at, e)
	summaryRoom := 0
	if s.Bounds.Summarise && !s.made.tried {
		summaryRoom = expectedSummary
	}
	fitted, ok := p.fit(history, older, s.summary.Text, summaryRoom)
	if !ok {
		return Request{}, p.tooLong()
	}
	e.set(fitted, history, older, s.summary)
	system := turnlog.NewRequestPart(s.systemText())
	e.System = system.SHA256
	e.head.system, _ = e.systemMessage(system.Content, s.summary) // set has set its summary
	shown, _ := e.shown(history)
	request, err := p.request(shown, nil)
	start := e.Epoch
	request.Recipe.Start, request.Recipe.After = &start, lastOf(shown)
	request.Parts = []turnlog.RequestPart{system, formPart(m)}
	if toolset := s.tools().part; toolset.SHA256 != "" {
		request.Parts = append(request.Parts, toolset)
	}
	return request, err
}

// newEpoch returns an epoch that begins with the next request, without what is fitted into the window.
func (s *State) newEpoch(m Model, at Moment, reason turnkeeper.EpochReason) *epoch {
	form := s.form(m, at.Rounds)
	return &epoch{
		id: turnkeeper.EpochID{Turn: s.turn, Round: len(at.Rounds) + 1}, model: m.key(), version: recipeVersion,
		final: at.Final, head: head{tools: s.tools().definitions}, Epoch: turnkeeper.Epoch{
			Reason: reason, Chain: s.chain, Definition: s.visible, Tools: s.tools().part.SHA256,
			Form: formPart(m).SHA256, Room: s.limit(m, at.Rounds),
			Reasoned: form.reasoned, BareTurn: form.bareTurn, BareRound: form.bareRound,
		},
	}
}

// kept returns the earlier turns that an epoch may show after another one, or nil, and how many are older.
func (s *State) kept(before *epoch) (history []turnlog.Past, older int) {
	history = s.history
	if before != nil {
		at, _ := indexOf(s.history, cmp.Or(before.FirstPast(), before.id.Turn))
		history = s.history[at:]
	}
	if s.made.unwritten != nil { // it covers what was to be left out, and nothing else
		after, found := indexOf(history, s.made.unwritten.UpTo)
		if found {
			after++
		}
		return history[after:], s.older + len(s.history) - len(history[after:])
	}
	if len(history) >= maxEpochTurns || before == nil && len(history) > newEpochTurns && s.Bounds.Summarise {
		history = history[len(history)-newEpochTurns:]
	}
	return history, s.older + len(s.history) - len(history)
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
		prior = s.memory.calibrations.of(m.key()).factor(1)
	}
	return own.factor(prior)
}

// limit returns the room that a refusal of the model left in this turn, or 0 if there was none. If
// another worker was refused, the journal has it.
func (s *State) limit(m Model, rounds []turnkeeper.Round) int {
	if s.refusals.tooLong == nil {
		for _, round := range rounds {
			if r := round.Recipe; r != nil && r.Start != nil && r.Start.Room > 0 {
				s.refusals.tooLong = &refusal{modelKey{r.Provider, r.Model}, r.Start.Room}
			}
		}
	}
	if s.refusals.tooLong == nil || s.refusals.tooLong.modelKey != m.key() {
		return 0
	}
	return s.refusals.tooLong.room
}

// Refuse records the error of a request. It reports whether the provider refused the
// request as too long and a smaller one may be tried, which is done once per turn.
func (s *State) Refuse(m Model, at Moment, refused Request, err error) bool {
	failure, isOne := errors.AsType[*inference.Error](err)
	if !isOne || failure.Class != inference.ClassContextOverflow || s.limit(m, at.Rounds) > 0 ||
		s.refusals.tooLong != nil {
		return false
	}
	s.refusals.tooLong = &refusal{m.key(), roomAfter(*failure, refused)}
	return true
}

// Room returns the maximum size of a request, in tokens, after Refuse has returned true.
func (s *State) Room() int { return s.refusals.tooLong.room }

// Answered returns an answered request with its recipe and parts completed, and calibrates
// later estimates by the reported usage.
func (s *State) Answered(m Model, rounds []turnkeeper.Round, request Request, res inference.Response) Request {
	sent := res.Sent
	if sent.SHA256 == "" {
		sent = inference.SentAs("", Canonical(request.Request))
	}
	r := &request.Recipe
	r.SHA256, r.Bytes = sent.SHA256, sent.Bytes
	if form := turnlog.NewRequestPart(sent.Form); form.SHA256 != request.epoch.Form {
		r.Form, request.Parts = form.SHA256, append(request.Parts, form)
	}
	if r.Window.Reported = reportedTokens(res.Usage); r.Window.Reported == 0 {
		return request
	}
	if r.Cut = s.report(m, rounds, *r, res.Usage).cut(); !r.Cut {
		s.memory.calibrations.observe(m.key(), r.Window)
	}
	return request
}

func (s *State) report(m Model, rounds []turnkeeper.Round, r turnkeeper.Recipe, used turnkeeper.Usage) report {
	rep := report{
		estimate: corrected(r.Window.Estimate(), r.Window.Factor), tools: corrected(r.Window.Tools, r.Window.Factor),
		reported: used.InputTokens, cached: used.CachedTokens + used.CacheWriteTokens,
		exact: Exact(m.Tokens.Counter), largest: s.memory.calibrations.of(m.key()).largest,
	}
	if rep.isLow() {
		for _, past := range s.history {
			rep.largest = max(rep.largest, largestOf(recipesFor(past.Rounds, m.key())))
		}
	}
	earlier := recipesFor(rounds, m.key())
	rep.largest = max(rep.largest, largestOf(earlier))
	if n := len(earlier); n > 0 && !earlier[n-1].Cut {
		rep.grown = max(0, rep.estimate-corrected(earlier[n-1].Window.Estimate(), r.Window.Factor))
	}
	return rep
}

// Unwritten returns the parts of the request of a new round that no earlier round of the turn has stored, and takes
// note that its epoch has begun.
func (s *State) Unwritten(r turnkeeper.Recipe, parts []turnlog.RequestPart) []turnlog.RequestPart {
	if r.Start != nil {
		s.epochs[r.Epoch] = epochOf([]turnkeeper.Round{{Recipe: &r}}, r.Epoch)
	}
	return s.parts.unwritten(parts)
}

// ToSummarise returns the earlier turns to add to the summary, or none if the summary covers everything that the
// request, the first of an epoch, leaves out.
func (s *State) ToSummarise(m Model, at Moment, request Request) []turnlog.Past {
	start := request.Recipe.Start
	if start == nil || !s.Bounds.Summarise || s.made.tried || s.newEpochRoom(m, at) < minSummaryRoom {
		return nil
	}
	var omitted []turnlog.Past
	for _, past := range s.history {
		if !slices.Contains(start.Past, past.TurnID) && past.TurnID > s.summary.UpTo {
			omitted = append(omitted, past)
		}
	}
	return omitted
}

// newEpochRoom returns the room of a new epoch.
func (s *State) newEpochRoom(m Model, at Moment) int {
	return roomIn(splitWindow(m.Window, s.def.MaxOutputTokens), s.limit(m, at.Rounds))
}

// SummaryUnsent allows another request for a summary: the one that was made was not sent.
func (s *State) SummaryUnsent() { s.made.tried = false }

// SummaryRequest returns a request for a summary of the turns and of the present summary.
// It shortens long texts until the request fits.
func (s *State) SummaryRequest(m Model, at Moment, turns []turnlog.Past) Request {
	s.made.tried = true
	return summaryRequest(m, s.factor(m, at.Rounds), s.turn, s.def.Temperature, s.summary.Text, turns)
}

// SetSummary sets the summary of the turns that requests leave out.
func (s *State) SetSummary(made turnlog.Summary) { s.summary, s.made.unwritten = made, &made }

// TakeSummary returns the summary that is not written yet, once, or nil.
func (s *State) TakeSummary() *turnlog.Summary {
	made := s.made.unwritten
	s.made.unwritten = nil
	return made
}
