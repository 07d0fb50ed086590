package views

import (
	"encoding/json"
	"time"

	"turnkeeper"
)

// An Event is an entry of a turn's stream.
type Event struct {
	TurnID turnkeeper.TurnID    `json:"turn_id"`
	Seq    int64                `json:"seq"`
	Type   turnkeeper.EventType `json:"type"`
	Round  int                  `json:"round" doc:"0: not of a round"`
	Block  int                  `json:"block" doc:"0: not of a block"`
	Data   json.RawMessage      `json:"data" schema:"type=object|null" doc:"null: none"`
	At     time.Time            `json:"at"`
}

// OfEvent returns the view of an event.
func OfEvent(e turnkeeper.Event) Event {
	v := Event(e)
	if len(v.Data) == 0 {
		v.Data = json.RawMessage("null")
	}
	return v
}
