package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"turnkeeper/asks"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/askform"
	"turnkeeper/internal/views"
	"turnkeeper/storage/operate"
)

// channelPage is the channel of answers on the page.
const channelPage = "page"

// Asks is a list of asks.
type Asks struct {
	Listing
	Asks []operate.Ask
}

func (Asks) file() string    { return "asks" }
func (Asks) title() string   { return "Asks" }
func (Asks) section() string { return asksSection }

// Ask is one ask.
type Ask struct {
	operate.Ask
	ByName bool // the form asks for the person's name, because there is no token
}

func (Ask) file() string    { return "ask" }
func (p Ask) title() string { return fmt.Sprintf("Ask %d", p.ID) }
func (Ask) section() string { return asksSection }

// Open reports whether the ask can be answered.
func (p Ask) Open() bool { return p.State == asks.Open }

// Approves reports whether the ask is approved, not answered.
func (p Ask) Approves() bool { return p.Kind.Takes() == asks.Approved }

// Edits reports whether the arguments may be changed.
func (p Ask) Edits() bool { return p.Kind == asks.KindApprove }

// MayDeny reports whether the ask can be denied.
func (p Ask) MayDeny() bool { return p.Kind.Decides(asks.Denied) }

// Field returns the field of the form that takes the answer.
func (p Ask) Field() askform.Field { return askform.FieldOf(p.Schema) }

// VisibleArguments returns the arguments with a line for each value, to read and to change.
func (p Ask) VisibleArguments() string { return askform.Visible(p.Arguments) }

// Doubts lists words of the arguments with letters that look like others.
func (p Ask) Doubts() []string { return askform.Doubts(p.Arguments + " " + p.Edited) }

// Question returns the text of a question, or "" for other kinds of asks.
func (p Ask) Question() string {
	if p.Kind != asks.KindQuestion {
		return ""
	}
	return p.Reason
}

// PlainAnswer returns the answer, without quotes if it is a string.
func (p Ask) PlainAnswer() string {
	text := p.Answer
	if json.Unmarshal([]byte(p.Answer), &text) != nil {
		return askform.Pretty(p.Answer)
	}
	return text
}

// A DiffLine is a line of changed arguments.
type DiffLine struct{ Class, Text string }

// Diff returns what a person changed in the arguments.
func (p Ask) Diff() (lines []DiffLine) {
	classes := map[byte]string{'-': "removed", '+': "added"}
	for _, line := range askform.Diff(p.Arguments, p.Edited) {
		lines = append(lines, DiffLine{classes[line[0]], line})
	}
	return lines
}

// Above returns the turns above the one that asks, from the root.
func (p Ask) Above() []operate.AskStep { return p.Path[:max(len(p.Path)-1, 0)] }

func (h *Handler) showAsks(c *request.Call) error {
	p, l, err := h.listing(c, request.AskStates...)
	if err != nil {
		return err
	}
	found, err := h.access.ListAsks(c, operate.AskFilter{State: asks.State(p.State), Agent: p.Agent, User: p.User,
		Before: asks.ID(p.Cursor), Limit: p.Limit})
	if err != nil {
		return err
	}
	if len(found) == p.Limit {
		l.Next = listPath(c, p, int64(found[len(found)-1].ID))
	}
	return h.show(c, http.StatusOK, Asks{l, found})
}

func (h *Handler) showAsk(c *request.Call) error {
	ask, err := h.access.Ask(c)
	if err != nil {
		return err
	}
	return h.show(c, http.StatusOK, Ask{ask, c.Caller.Token == nil})
}

// answerAsk answers an ask with a form: approve, deny, or answer with a value.
func (h *Handler) answerAsk(c *request.Call) error {
	if err := readFormUpTo(c, (asks.MaxAnswer+maxEdited)*bytesFormEscape+request.BodyOverhead); err != nil {
		return err
	}
	ask, err := h.access.Ask(c)
	if err != nil {
		return err
	}
	form := func(name string) string { return strings.ReplaceAll(c.PostForm.Get(name), "\r\n", "\n") }
	a := asks.Answer{
		Decision: asks.State(form("decision")), By: strings.TrimSpace(form("answered_by")), Channel: channelPage,
		Comment: strings.TrimSpace(form("comment")),
		Hash:    form("hash"),
	}
	switch a.Decision {
	case asks.Answered:
		if a.Answer, err = askform.FieldOf(ask.Schema).Value(form("answer")); err != nil {
			return request.Refuse(http.StatusBadRequest, "the answer is invalid: %s", err)
		}
	case asks.Approved:
		if a.Edited = strings.TrimSpace(form("arguments")); a.Edited == "" && c.PostForm.Has("arguments") {
			return request.Refuse(http.StatusBadRequest,
				"the arguments are empty: write {} for a call without arguments")
		}
	}
	if ask, err = h.access.AnswerAsk(c, a); err != nil {
		return err
	}
	return c.GoTo(views.AskPath(ask.ID) + "?done=" + string(ask.State))
}

// maxEdited is the maximum length of edited arguments, as in the database.
const maxEdited = 256 << 10
