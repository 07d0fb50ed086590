package views

import "turnkeeper"

// A Request is how the request of a round stood against the context window.
// Parts are estimates in tokens before correction.
type Request struct {
	Provider       string             `json:"provider"`
	Model          string             `json:"model"`
	Window         int                `json:"window_tokens"`
	Answer         int                `json:"reserved_answer_tokens"`
	Safety         int                `json:"safety_tokens"`
	System         int                `json:"system_prompt_tokens"`
	Tools          int                `json:"tool_definition_tokens"`
	History        int                `json:"history_tokens"`
	Turn           int                `json:"turn_tokens"`
	Notice         int                `json:"notice_tokens"`
	Factor         float64            `json:"correction_factor"`
	Estimate       int                `json:"estimated_tokens"` // corrected
	Room           int                `json:"room_tokens"`
	Reported       *int64             `json:"reported_tokens"` // null: the provider reported none
	Dropped        string             `json:"dropped_results"` // of this turn's calls, by number
	FirstPast      *turnkeeper.TurnID `json:"first_earlier_turn"`
	LeanPast       *turnkeeper.TurnID `json:"earlier_results_dropped_to_turn"`
	Omitted        int                `json:"earlier_turns_not_shown"`
	Summary        *turnkeeper.TurnID `json:"summary_to_turn"`
	SilentlyCut    bool               `json:"silently_cut"`
	CompactedTo    *int               `json:"compacted_to_tokens"` // null: the provider refused nothing as too long
	SHA256         string             `json:"sha256"`
	Bytes          int                `json:"bytes"`
	ToolsHash      string             `json:"tools_sha256"`
	NoticeText     string             `json:"notice"`
	ToolsForbidden bool               `json:"last_round"`
}

// OfRequest shows how a request was made; nil: that is not known.
func OfRequest(r *turnkeeper.Recipe) *Request {
	if r == nil {
		return nil
	}
	w := r.Window
	return &Request{
		Provider: r.Provider, Model: r.Model, Window: w.Size, Answer: w.Answer, Safety: w.Safety, System: w.System, Tools: w.Tools,
		History: w.History, Turn: w.Turn, Notice: w.Notice, Factor: w.Factor, Estimate: w.Corrected(), Room: w.Room(),
		Reported: OrNull(w.Reported), Dropped: r.Dropped, FirstPast: OrNull(r.FirstPast), LeanPast: OrNull(r.LeanPast), Omitted: r.Omitted,
		Summary: OrNull(r.Summary), SilentlyCut: r.Cut, CompactedTo: OrNull(r.Compacted), SHA256: r.SHA256, Bytes: r.Bytes,
		ToolsHash: r.Tools, NoticeText: r.Notice, ToolsForbidden: r.Final,
	}
}
