package responses

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"turnkeeper"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// drafts are the events of a response that streams what the model writes while it writes. Each text of the model is an
// item of its own. Only its end says what it was: the reply (phase final_answer), a comment between calls (commentary),
// or a text that became void because its call or its turn failed, or its worker was lost (commentary, and status
// incomplete). The events depend only on the stored events of the turns and on the stored end, so they have the same
// numbers at every process.
type drafts struct {
	*series
	text *draft // that is written; nil: none
}

// A draft is a text of the model.
type draft struct {
	*output
	said  strings.Builder // what was sent
	space string          // white space after it that was not sent: replies have none at their ends
}

// draftsOf returns the first events of a response with drafts.
func draftsOf(r operate.Response) *drafts { return &drafts{series: begin(r)} }

// take adds the events that follow from an event of a turn of the response.
func (d *drafts) take(e turnkeeper.Event) {
	e, seen := views.ForSender(e)
	if !seen || e.Seq == 0 { // not of a turn
		return
	}
	d.progress()
	var data struct{ Kind, Text string }
	if len(e.Data) > 0 && json.Unmarshal(e.Data, &data) != nil {
		return
	}
	switch e.Type {
	case turnkeeper.EventBlockDelta:
		d.write(e, data.Text)
	case turnkeeper.EventRoundRollback, turnkeeper.EventTurnError:
		d.close(statusIncomplete)
	case turnkeeper.EventBlockStart, turnkeeper.EventToolStarted, turnkeeper.EventRoundStart:
		d.close(statusCompleted)
	default:
	}
}

// write adds a text to the open draft, or opens one.
func (d *drafts) write(e turnkeeper.Event, more string) {
	if d.text == nil {
		more = strings.TrimLeftFunc(more, unicode.IsSpace)
		if more == "" {
			return
		}
		d.text = &draft{output: d.open(fmt.Sprintf("%s_%d_%d", outputID(d.r.Message.ID), e.TurnID, e.Block), "")}
	}
	more = d.text.space + more
	said := strings.TrimRightFunc(more, unicode.IsSpace)
	d.text.space = more[len(said):]
	d.text.said.WriteString(said)
	d.text.write(said)
}

// close ends the open draft, which is not the reply.
func (d *drafts) close(status string) {
	if d.text != nil {
		d.text.close(status, phaseCommentary, d.text.said.String())
		d.text = nil
	}
}

// end adds the last events of a response that has ended. The open draft is its reply if that begins with it.
func (d *drafts) end(r operate.Response) {
	status := statusOf(r)
	replied := status == statusCompleted || status == statusIncomplete
	if d.text == nil || !replied || !strings.HasPrefix(r.Reply, d.text.said.String()) {
		d.close(statusIncomplete)
		d.series.end(r)
		return
	}
	d.r = r
	d.text.write(r.Reply[d.text.said.Len():])
	d.text.close(status, phaseFinal, r.Reply)
	view := viewOf(r)
	view.Output = []item{messageOfAgent(d.text.id, status, phaseFinal, text(r.Reply))}
	d.terminal(view)
}
