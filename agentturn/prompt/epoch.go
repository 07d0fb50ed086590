package prompt

import (
	"cmp"
	"reflect"
	"slices"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// Bounds of an epoch, in earlier turns that its requests show. The record has more, so that an epoch ends before its
// first turns are lost, and they are summarised before.
const (
	maxEpochTurns = turnlog.PastTurns - 20 // at which it ends
	newEpochTurns = maxEpochTurns / 2      // with which the next one begins
)

// An epoch is an epoch as its requests are built.
type epoch struct {
	turnkeeper.Epoch
	id      turnkeeper.EpochID
	model   modelKey
	version int
	final   bool // its first request announced the last round
	head    head
}

// A head is what all requests of an epoch begin with.
type head struct {
	system string // the system message
	tools  []inference.ToolDefinition
}

// same reports whether two epochs show the same of each turn. One that begins at the same round may be another: a
// worker that lost its lease does not know what was put on record after it.
func (e *epoch) same(other *epoch) bool {
	return e.id == other.id && e.model == other.model && e.version == other.version && e.final == other.final &&
		reflect.DeepEqual(e.Epoch, other.Epoch)
}

// has reports whether a round belongs to the epoch. The request after it then contains it as it came.
func (e *epoch) has(round turnkeeper.Round) bool {
	return round.Recipe != nil && round.Recipe.Epoch == e.id
}

// reads reports whether the model can read results again that were dropped when the epoch began.
func (e *epoch) reads() bool { return !e.final && reads(e.head.tools) }

// bare reports whether the calls of a round are written as text.
func (e *epoch) bare(turn turnkeeper.TurnID, round int) bool {
	return turn < e.BareTurn || turn == e.BareTurn && round <= e.BareRound
}

// shown returns the earlier turns that requests of the epoch show: those of its first request, and all since then.
// missing is one of them that is not in the history, or 0.
func (e *epoch) shown(history []turnlog.Past) (shown []turnlog.Past, missing turnkeeper.TurnID) {
	since, _ := indexOf(history, e.id.Turn)
	first := since - len(e.Past)
	if first >= 0 && slices.EqualFunc(history[first:since], e.Past, isTurn) {
		return history[first:], 0
	}
	for _, id := range e.Past {
		at, found := indexOf(history, id)
		if !found {
			return nil, id
		}
		shown = append(shown, history[at])
	}
	return append(shown, history[since:]...), 0
}

func isTurn(p turnlog.Past, id turnkeeper.TurnID) bool { return p.TurnID == id }

// unbroken reports whether requests of the epoch show all turns that were told since its first one. If they do not, a
// turn waited while later ones ran. shown are what they show, and rounds those of the turn.
func (e *epoch) unbroken(history, shown []turnlog.Past, turn turnkeeper.TurnID, rounds []turnkeeper.Round) bool {
	if len(shown) > 0 {
		if first, _ := indexOf(history, shown[0].TurnID); len(history)-first != len(shown) {
			return false
		}
	}
	before := turnkeeper.TurnID(0)
	for _, past := range shown {
		if last, ok := e.after(past.TurnID, past.Rounds); ok && last != before {
			return false
		}
		before = past.TurnID
	}
	last, ok := e.after(turn, rounds)
	return !ok || last == before
}

// after returns the earlier turn that the newest request of the epoch in a turn shows last. ok is false if the turn has
// no such request.
func (e *epoch) after(turn turnkeeper.TurnID, rounds []turnkeeper.Round) (last turnkeeper.TurnID, ok bool) {
	for _, round := range rounds {
		if r := round.Recipe; r != nil && r.Epoch == e.id && (turn > e.id.Turn || r.Start != nil) {
			return r.After, true
		}
	}
	return 0, false
}

// withoutLate returns the turns without those that were not yet told when a request of the epoch was made. rounds are
// those of its turn up to the request.
func (e *epoch) withoutLate(shown []turnlog.Past, turn turnkeeper.TurnID, rounds []turnkeeper.Round) []turnlog.Past {
	last, known := e.after(turn, rounds)
	var kept []turnlog.Past
	for _, past := range slices.Backward(shown) {
		if known && past.TurnID > last {
			continue
		}
		kept = append(kept, past)
		last, known = e.after(past.TurnID, past.Rounds)
	}
	slices.Reverse(kept)
	return kept
}

// lastOf returns the newest of the turns, or 0.
func lastOf(shown []turnlog.Past) turnkeeper.TurnID {
	if len(shown) == 0 {
		return 0
	}
	return shown[len(shown)-1].TurnID
}

// epochIn returns an epoch that began in a turn or in those before it, without its texts, or nil.
func epochIn(record *turnlog.Record, id turnkeeper.EpochID) *epoch {
	if id.Turn == record.Turn.ID {
		return epochOf(record.Rounds, id)
	}
	if at, found := indexOf(record.History, id.Turn); found {
		return epochOf(record.History[at].Rounds, id)
	}
	return nil
}

// indexOf returns the index of a turn in a history, or of the first one after it.
func indexOf(history []turnlog.Past, turn turnkeeper.TurnID) (at int, found bool) {
	return slices.BinarySearchFunc(history, turn, func(p turnlog.Past, id turnkeeper.TurnID) int {
		return cmp.Compare(p.TurnID, id)
	})
}

// epochOf returns an epoch that began in these rounds of its turn, or nil.
func epochOf(rounds []turnkeeper.Round, id turnkeeper.EpochID) *epoch {
	for _, round := range rounds {
		if r := round.Recipe; r != nil && r.Start != nil && r.Epoch == id {
			return &epoch{Epoch: *r.Start, id: id, model: modelKey{r.Provider, r.Model}, version: r.Version,
				final: r.Final}
		}
	}
	return nil
}

// epoch returns an epoch that began in the turn or in those before it, or nil.
func (s *State) epoch(id turnkeeper.EpochID, rounds []turnkeeper.Round) *epoch {
	e, known := s.epochs[id]
	if !known {
		e = epochIn(&turnlog.Record{Turn: turnkeeper.Turn{ID: s.turn}, History: s.history, Rounds: rounds}, id)
		s.epochs[id] = e
	}
	return e
}

// visible returns the hash of what a definition says of the head of a request. A change of anything else, such as the
// list of a tool server, takes effect with the next epoch.
func visible(d *agentdef.Definition, o Offer) string {
	return turnlog.NewRequestPart(string(Canonical(struct {
		Prompt           string
		Tools, SubAgents []string
		Servers          []agentdef.MCPServer
		Paging, Async    bool
		Handles, Stored  bool
	}{d.Prompt, d.Tools, d.SubAgents, d.MCPServers, o.Bounds.Paging, o.Bounds.Async, o.Bounds.OutputHandles,
		o.Stored}))).SHA256
}

// chainOf returns the schedule whose runs see only their own history, or "".
func chainOf(record *turnlog.Record, d *agentdef.Definition) string {
	if record.Message.Trigger == turnkeeper.TriggerSchedule &&
		historyOf(d, record.Message.Schedule) != agentdef.HistoryAll {
		return record.Message.Schedule
	}
	return ""
}

// newest returns the newest recipe of the turn's chain, or nil. A run that sees only its own history starts an epoch.
func (s *State) newest(rounds []turnkeeper.Round) *turnkeeper.Recipe {
	_, round := newest(s.turn, rounds, s.history, s.chain, func(id turnkeeper.EpochID) *epoch {
		return s.epoch(id, rounds)
	})
	if round == nil {
		return nil
	}
	return round.Recipe
}

// newest returns the newest round of a turn's chain that has a recipe, with its turn, or nil. epochOf returns an epoch
// that began in the turn or in those before it, or nil.
func newest(turn turnkeeper.TurnID, rounds []turnkeeper.Round, history []turnlog.Past, chain string,
	epochOf func(turnkeeper.EpochID) *epoch) (turnkeeper.TurnID, *turnkeeper.Round) {
	for i := range slices.Backward(rounds) {
		if rounds[i].Recipe != nil {
			return turn, &rounds[i]
		}
	}
	if chain != "" {
		return 0, nil
	}
	for _, past := range slices.Backward(history) {
		for i := range slices.Backward(past.Rounds) {
			r := past.Rounds[i].Recipe
			if r == nil {
				continue
			}
			if began := epochOf(r.Epoch); began == nil && r.Epoch.Turn < past.TurnID || began != nil &&
				began.Chain == "" {
				return past.TurnID, &past.Rounds[i]
			}
			break
		}
	}
	return 0, nil
}

// current returns the epoch of the newest recipe. If it has ended, reason says why, or, if it is nil, why another one
// begins.
func (s *State) current(m Model, rounds []turnkeeper.Round) (e *epoch, reason turnkeeper.EpochReason, ended bool) {
	r := s.newest(rounds)
	if r == nil {
		if s.chain != "" {
			return nil, EpochHistory, true
		}
		return nil, "", true
	}
	e = s.epoch(r.Epoch, rounds)
	if e == nil {
		return nil, EpochPurged, true
	}
	shown, missing := e.shown(s.history)
	switch {
	case e.version != recipeVersion || e.Definition != s.visible:
		reason = EpochDefinition
	case e.model != m.key() || e.Form != formPart(m).SHA256:
		reason = EpochModel
	case s.refusals.rewritten[m.key()].wanted(e):
		reason = EpochRefused
	case s.made.unwritten != nil:
		reason = EpochSummary
	case missing != 0 && s.older > 0, len(shown) >= maxEpochTurns:
		reason = EpochRoom
	case missing != 0:
		reason = EpochPurged
	case s.limit(m, rounds) > 0 && s.limit(m, rounds) != e.Room:
		reason = EpochRoom
	case !e.unbroken(s.history, shown, s.turn, rounds):
		reason = EpochHistory
	default:
		reason = s.readHead(e)
	}
	return e, reason, reason != ""
}

func formPart(m Model) turnlog.RequestPart { return turnlog.NewRequestPart(m.Form) }

// readHead sets the texts of an epoch from the stored parts. If it cannot, reason says why the epoch has ended.
func (s *State) readHead(e *epoch) (reason turnkeeper.EpochReason) {
	text, known := s.parts.contents[e.System]
	if !known {
		return EpochPurged
	}
	var ok bool
	if e.head.system, ok = e.systemMessage(text, s.summary); !ok {
		return EpochSummary
	}
	switch e.Tools {
	case "":
	case s.tools().part.SHA256:
		e.head.tools = s.tools().definitions
	default:
		if e.head.tools == nil {
			var err error
			if e.head.tools, err = toolsOf(s.parts.contents[e.Tools]); err != nil {
				return EpochPurged
			}
		}
	}
	return ""
}
