package turnlog

import (
	"encoding/json"
	"time"

	"turnkeeper"
)

// A RefusedWrite is a write to the journal that had to wait because the database refused it, or could not be reached.
type RefusedWrite struct {
	For      time.Duration // from the first attempt to the one that succeeded
	SQLState string        // of the newest refusal; empty: the database could not be reached
	EndedAt  time.Time     // set when it is read
}

// NoticeData is the data of an event notice: see package turnevents.
type NoticeData struct {
	Text string `json:"text"`
	Call string `json:"call,omitempty" doc:"of progress of a call: round-R-tool-I"`

	// Of a RefusedWrite, whose notice the store adds.
	WaitedMs int64  `json:"waited_ms,omitempty" doc:"of a write to the journal that had to wait for the database: for how long"`
	SQLState string `json:"sqlstate,omitempty" doc:"why the database refused that write; empty: it could not be reached"`
}

// Event returns the notice that the write itself records, with its text.
func (w RefusedWrite) Event(round int, text string) turnkeeper.Event {
	// it has only numbers and text
	data, _ := json.Marshal(NoticeData{Text: text, WaitedMs: w.For.Milliseconds(), SQLState: w.SQLState})
	return turnkeeper.Event{Type: turnkeeper.EventNotice, Round: round, Data: data}
}

// ReadRefusedWrite reads the data of a notice. ok is false if it is another notice.
func ReadRefusedWrite(data string, at time.Time) (w RefusedWrite, ok bool) {
	var n NoticeData
	if json.Unmarshal([]byte(data), &n) != nil || n.WaitedMs <= 0 {
		return w, false
	}
	return RefusedWrite{time.Duration(n.WaitedMs) * time.Millisecond, n.SQLState, at}, true
}
