package dbrow

import (
	"encoding/json"
	"time"

	"turnkeeper"
	"turnkeeper/internal/presence"
)

// A refusal is a presence.Refusal in the column refused of the table worker_heartbeat. Only the first of a row has a
// message: the row must stay small.
type refusal struct {
	Turn     int64  `json:"turn,omitempty"`
	Ms       int64  `json:"ms"`
	Attempts int    `json:"attempts"`
	SQLState string `json:"sqlstate"`
	Message  string `json:"message,omitempty"`
}

// StoreRefused returns the column's value, with at most presence.MaxRefused refusals.
func StoreRefused(all []presence.Refusal) []byte {
	stored := make([]refusal, 0, len(all))
	for i, r := range all[:min(len(all), presence.MaxRefused)] {
		stored = append(stored, refusal{Turn: int64(r.Turn), Ms: r.For.Milliseconds(), Attempts: r.Attempts,
			SQLState: r.SQLState})
		if i == 0 {
			stored[0].Message = r.Message
		}
	}
	text, _ := json.Marshal(stored) // it has only numbers and text
	return text
}

// Refused returns the refusals of a heartbeat, which was sent the given number of milliseconds ago.
func Refused(column string, silentMs int64) (all []presence.Refusal) {
	var stored []refusal
	if json.Unmarshal([]byte(column), &stored) != nil {
		return nil
	}
	for _, r := range stored {
		all = append(all, presence.Refusal{
			Turn: turnkeeper.TurnID(r.Turn), For: time.Duration(r.Ms+silentMs) * time.Millisecond, Attempts: r.Attempts,
			SQLState: r.SQLState, Message: stored[0].Message,
		})
	}
	return all
}
