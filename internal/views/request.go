package views

import "turnkeeper"

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
	Dropped        string             `json:"dropped_results" doc:"numbers of this turn's calls whose results were left out"`
	FirstPast      *turnkeeper.TurnID `json:"first_earlier_turn"`
	LeanPast       *turnkeeper.TurnID `json:"earlier_results_dropped_to_turn"`
	Omitted        int                `json:"earlier_turns_not_shown"`
	Summary        *turnkeeper.TurnID `json:"summary_to_turn"`
	SilentlyCut    bool               `json:"silently_cut"`
	CompactedTo    *int               `json:"compacted_to_tokens" schema:"format=int64" doc:"null: the provider did not refuse the request as too long"`
	Record         string             `json:"record" doc:"how the record of the conversation was written after the provider had refused it; empty: as usual"`
	SHA256         string             `json:"sha256"`
	Bytes          int                `json:"bytes" schema:"format=int64"`
	ToolsHash      string             `json:"tools_sha256"`
	NoticeText     string             `json:"notice"`
	ToolsForbidden bool               `json:"last_round"`
}

// OfRequest returns the view of a request's recipe; nil for nil.
func OfRequest(r *turnkeeper.Recipe) *Request {
	if r == nil {
		return nil
	}
	w := r.Window
	return &Request{
		Provider: r.Provider, Model: r.Model, Window: w.Size, Answer: w.Answer, Safety: w.Safety, System: w.System,
		Tools:   w.Tools,
		History: w.History, Turn: w.Turn, Notice: w.Notice, Factor: w.Factor, Estimate: w.Corrected(), Room: w.Room(),
		Reported: OrNull(w.Reported), Dropped: r.Dropped, FirstPast: OrNull(r.FirstPast), LeanPast: OrNull(r.LeanPast),
		Omitted: r.Omitted,
		Summary: OrNull(r.Summary), SilentlyCut: r.Cut, CompactedTo: OrNull(r.Compacted), Record: r.RecordNote(),
		SHA256: r.SHA256, Bytes: r.Bytes,
		ToolsHash: r.Tools, NoticeText: r.Notice, ToolsForbidden: r.Final,
	}
}
