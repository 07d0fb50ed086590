package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/inference"
	"turnkeeper/storage"
)

// A SentRequest is the request of a round, as it was sent, compared with the newest one before it of its chain.
type SentRequest struct {
	prompt.Sent
	Compared *prompt.Comparison // nil: none is on record, or Unknown says more
	Unknown  error              // why they cannot be compared; nil: they can
	// Before and After are excerpts of where the two first differ, with secrets masked.
	Before, After string
}

// Rebuild rebuilds the request of a round. Its errors say in plain words why it cannot be rebuilt.
type Rebuild func(ctx context.Context, turn turnkeeper.TurnID, round int) (SentRequest, error)

// Request is the request of a round.
type Request struct {
	Sent  SentRequest
	Agent string
	Part  string // the tab that is shown
	Why   string // why it cannot be rebuilt; empty: it can
	// Unknown says why it cannot be compared with the request before it; empty: it can.
	Unknown string
}

func (Request) file() string { return "request" }
func (p Request) title() string {
	return fmt.Sprintf("Request %d of turn %d", p.Sent.Round, p.Sent.Turn)
}
func (Request) section() string { return "/turns" }

// The tabs of a request.
const partMessages, partTools = "messages", "tools"

// A Tab is one of the parts of a request.
type Tab struct {
	Href, Name string
	Count      int
	Here       bool
}

// Tabs returns the links to the parts of the request.
func (p Request) Tabs() []Tab {
	return []Tab{
		{p.path(partMessages), "Messages", len(p.Sent.Messages), !p.ShowsTools()},
		{p.path(partTools), "Tools", len(p.Sent.Tools), p.ShowsTools()},
	}
}

// ShowsTools reports whether the tab with the tools is shown.
func (p Request) ShowsTools() bool { return p.Part == partTools }

// path returns the path of a tab.
func (p Request) path(part string) string {
	path := fmt.Sprintf("/turns/%d/requests/%d", p.Sent.Turn, p.Sent.Round)
	if part == partTools {
		path += "?part=" + partTools
	}
	return path
}

// differs returns the first place where the request does not repeat the one before it, or nil.
func (p Request) differs() *prompt.Divergence {
	if p.Sent.Compared == nil {
		return nil
	}
	return p.Sent.Compared.Differs
}

// DiffersAt returns the path of the first message or tool that differs; empty: the request does not have it.
func (p Request) DiffersAt() string {
	d := p.differs()
	switch {
	case d == nil || d.After == "":
		return ""
	case d.Kind == prompt.DifferentTool:
		return fmt.Sprintf("%s#tool-%d", p.path(partTools), d.Number)
	}
	return fmt.Sprintf("%s#message-%d", p.path(partMessages), d.Number)
}

// A Piece is a message or a tool of a request.
type Piece struct {
	ID     string
	Number int
	Name   string // the role of a message, or the name of a tool
	About  string // the tool of a result; empty: none
	Texts  []text
	Raw    text   // of an answer: what its provider sent, which goes back to it; RawOf is empty if there is none
	RawOf  string // the provider
	Mark   string // what it is against the request before it; empty: the same, or it is not known
	Open   bool
}

// A text is a text of a piece.
type text struct {
	Label, Text string
	Code        bool
	More        int // characters that are not shown
}

// shownChars is the number of characters that a page shows of a text of a request.
const shownChars = 20_000

// shortBytes is the size up to which the texts of a message are not folded, and of a preview.
const shortBytes = 400

func textOf(label, s string, code bool) text {
	end := 0
	for range shownChars {
		if end == len(s) {
			break
		}
		_, size := utf8.DecodeRuneInString(s[end:])
		end += size
	}
	return text{label, s[:end], code, utf8.RuneCountInString(s[end:])}
}

// mark says of a piece what it is against the request before it, and whether it is open at first. same is the number of
// pieces with which both requests begin.
func (p Request) mark(one Piece, same int) Piece {
	size := 0
	for _, t := range one.Texts {
		size += len(t.Text)
	}
	one.Open = size <= shortBytes && !p.ShowsTools()
	if p.Sent.Compared == nil || one.Number <= same {
		return one
	}
	if d := p.differs(); d == nil {
		one.Mark, one.Open = "new", true
	} else {
		one.Mark = "read anew"
		one.Open = one.Open || one.Number == d.Number && (d.Kind == prompt.DifferentTool) == p.ShowsTools()
	}
	return one
}

// MessageParts returns the messages.
func (p Request) MessageParts() (pieces []Piece) {
	same := 0
	if p.Sent.Compared != nil {
		same = p.Sent.Compared.Repeated
	}
	for i, m := range p.Sent.Messages {
		one := Piece{ID: fmt.Sprint("message-", i+1), Number: i + 1, Name: string(m.Role), About: m.Tool}
		if m.Text != "" || len(m.Calls) == 0 {
			one.Texts = append(one.Texts, textOf("", m.Text, m.Role == inference.RoleTool))
		}
		for _, call := range m.Calls {
			one.Texts = append(one.Texts, textOf("Call of "+call.Name, call.Arguments, true))
		}
		if len(m.Raw) > 0 {
			one.Raw, one.RawOf = textOf("", string(m.Raw), true), m.RawProvider
		}
		pieces = append(pieces, p.mark(one, same))
	}
	return pieces
}

// ToolParts returns the tools.
func (p Request) ToolParts() (pieces []Piece) {
	same := len(p.Sent.Tools)
	if d := p.differs(); d != nil && d.Kind == prompt.DifferentTool {
		same = d.Number - 1
	}
	for i, tool := range p.Sent.Tools {
		var schema bytes.Buffer
		if json.Indent(&schema, tool.Parameters, "", "  ") != nil {
			schema.Write(tool.Parameters)
		}
		pieces = append(pieces, p.mark(Piece{ID: fmt.Sprint("tool-", i+1), Number: i + 1, Name: tool.Name,
			Texts: []text{
				textOf("", tool.Description, false), textOf("Schema of its arguments", schema.String(), true)}}, same))
	}
	return pieces
}

// Preview returns the beginning of the first text, and more of it than fits a line.
func (p Piece) Preview() string {
	s := p.Texts[0].Text
	end := min(len(s), shortBytes)
	for end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

func (h *Handler) showRequest(c *request.Call) error {
	if !c.Caller.SeesAll() {
		return request.Refuse(http.StatusForbidden,
			"a request shows the agent's prompt, and names agents: use a token that is not restricted to some")
	}
	v, err := h.access.Turn(c)
	if err != nil {
		return err
	}
	round, err := strconv.Atoi(c.PathValue("round"))
	if err != nil || round < 1 || round > len(v.Rounds) {
		return request.Refuse(http.StatusNotFound, "turn %d has no answered round %.20q", v.Turn.ID,
			c.PathValue("round"))
	}
	sent, err := h.cfg.Rebuild(c.Context(), v.Turn.ID, round)
	for _, failed := range []error{err, sent.Unknown} {
		if failed != nil && (c.Context().Err() != nil || storage.Away(failed)) {
			return failed
		}
	}
	view := Request{Sent: sent, Agent: v.Turn.Agent, Part: partMessages}
	if c.URL.Query().Get("part") == partTools {
		view.Part = partTools
	}
	switch {
	case err != nil:
		view.Sent.Turn, view.Sent.Round, view.Why = v.Turn.ID, round, h.cfg.Mask(err.Error())
	case sent.Unknown != nil:
		view.Unknown = h.cfg.Mask(sent.Unknown.Error())
	}
	return h.show(c, http.StatusOK, view)
}
