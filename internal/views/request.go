package views

import (
	"turnkeeper"
	"turnkeeper/agentturn/prompt"
)

// A Request is the size of a round's request in relation to the context window. The parts are
// estimates in tokens, before correction.
type Request struct {
	Provider       string             `json:"provider"`
	Model          string             `json:"model"`
	Window         int                `json:"window_tokens" schema:"format=int64"`
	Answer         int                `json:"reserved_answer_tokens" schema:"format=int64"`
	Safety         int                `json:"safety_tokens" schema:"format=int64"`
	System         int                `json:"system_prompt_tokens" schema:"format=int64"`
	Tools          int                `json:"tool_definition_tokens" schema:"format=int64"`
	History        int                `json:"history_tokens" schema:"format=int64"`
	Turn           int                `json:"turn_tokens" schema:"format=int64"`
	Notice         int                `json:"notice_tokens" schema:"format=int64"`
	Factor         float64            `json:"correction_factor"`
	Estimate       int                `json:"estimated_tokens" schema:"format=int64" doc:"sum of the parts times correction_factor"`
	Room           int                `json:"room_tokens" schema:"format=int64"`
	Reported       *int64             `json:"reported_tokens" doc:"null: not reported by the provider"`
	SilentlyCut    bool               `json:"silently_cut"`
	Epoch          turnkeeper.EpochID `json:"epoch" doc:"the first request of the epoch: each request of an epoch extends the one before it"`
	Start          *EpochStart        `json:"epoch_start" doc:"null: the request extends the one before it"`
	SHA256         string             `json:"sha256"`
	Bytes          int                `json:"bytes" schema:"format=int64"`
	NoticeText     string             `json:"notice"`
	ToolsForbidden bool               `json:"last_round"`
}

// An EpochStart says why an epoch began, and how its requests begin.
type EpochStart struct {
	Reason      turnkeeper.EpochReason `json:"reason" doc:"empty: the first of its chain"`
	Why         string                 `json:"why"`
	Chain       string                 `json:"chain" doc:"the schedule whose runs see only their own history; empty: none"`
	Dropped     string                 `json:"dropped_results" doc:"numbers of this turn's calls whose results were left out"`
	FirstPast   *turnkeeper.TurnID     `json:"first_earlier_turn"`
	LeanPast    *turnkeeper.TurnID     `json:"earlier_results_dropped_to_turn"`
	Omitted     int                    `json:"earlier_turns_not_shown"`
	Summary     *turnkeeper.TurnID     `json:"summary_to_turn"`
	CompactedTo *int                   `json:"compacted_to_tokens" schema:"format=int64" doc:"null: the provider did not refuse the request as too long"`
	Record      string                 `json:"record" doc:"how the record of the conversation is written after the provider had refused it; empty: as usual"`
	System      string                 `json:"system_sha256"`
	Tools       string                 `json:"tools_sha256" doc:"empty: none are declared"`
}

func ofEpoch(e turnkeeper.Epoch) *EpochStart {
	return &EpochStart{
		Reason: e.Reason, Why: prompt.Why(e), Chain: e.Chain, Dropped: e.Dropped, FirstPast: OrNull(e.FirstPast()),
		LeanPast: OrNull(e.LeanPast), Omitted: e.Omitted, Summary: OrNull(e.Summary), CompactedTo: OrNull(e.Room),
		Record: prompt.RecordNote(e), System: e.System, Tools: e.Tools,
	}
}

// OfRequest returns the view of a request's recipe; nil for nil.
func OfRequest(r *turnkeeper.Recipe) *Request {
	if r == nil {
		return nil
	}
	w := r.Window
	view := &Request{
		Provider: r.Provider, Model: r.Model, Window: w.Size, Answer: w.Answer, Safety: w.Safety, System: w.System,
		Tools: w.Tools, History: w.History, Turn: w.Turn, Notice: w.Notice, Factor: w.Factor, Estimate: w.Corrected(),
		Room: w.Room(), Reported: OrNull(w.Reported), SilentlyCut: r.Cut, Epoch: r.Epoch, SHA256: r.SHA256,
		Bytes: r.Bytes, NoticeText: r.Notice, ToolsForbidden: r.Final,
	}
	if r.Start != nil {
		view.Start = ofEpoch(*r.Start)
	}
	return view
}
