package follow

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"turnkeeper"
	turnevents "turnkeeper/agentturn/turnevents"
	"turnkeeper/internal/cli/term"
)

// A Progress shows on standard error what a turn does. On a terminal it prints
// a line for each tool call and one status line that changes in place. If
// standard error is not a terminal it prints nothing, or with verbose a line
// for each event.
type Progress struct {
	*term.Screen
	live    bool // show the status line
	verbose bool
	status  bool // the status line is on the screen
	round   int
	kind    string // of the streaming block
	text    string // of the block, so far
}

// NewProgress returns a Progress on a screen. With verbose it prints a line for each event, with never nothing.
func NewProgress(s *term.Screen, verbose, never bool) *Progress {
	return &Progress{Screen: s, live: s.Terminal && !never, verbose: verbose && !never}
}

// shows reports whether it shows anything of a turn.
func (p *Progress) shows() bool { return p.live || p.verbose }

func (p *Progress) begin(turn turnkeeper.TurnID) {
	if turn != 0 {
		p.say(p.Paint(term.Dim, fmt.Sprintf("turn %d", turn)))
	}
}

// say prints a permanent line.
func (p *Progress) say(line string) {
	p.wipe()
	p.Line("%s", line)
}

// setStatus replaces the text of the status line.
func (p *Progress) setStatus(text string) {
	if !p.live {
		return
	}
	p.wipe()
	fmt.Fprint(p.W, p.Paint(term.Dim, term.Cut(text, p.Columns-1)))
	p.status = true
}

func (p *Progress) wipe() {
	if p.status {
		fmt.Fprint(p.W, "\r\x1b[K")
		p.status = false
	}
}

// end removes the status line.
func (p *Progress) end() { p.wipe() }

// show shows an event. The events of a turn come in order.
func (p *Progress) show(e turnkeeper.Event) {
	switch e.Type {
	case turnkeeper.EventTurnWaiting:
		p.waits(e)
	case turnkeeper.EventAskClosed:
		data := DataOf[turnevents.AskData](e)
		p.say("  " + term.OneLine(data.Ask+": "+string(data.State), max(p.Columns-3, 0)))
	case turnkeeper.EventTurnResumed:
		p.say(p.Paint(term.Warned, "  the turn continues with another grant"))
	case turnkeeper.EventRoundStart:
		p.round = e.Round
		p.roundStarts(e)
	case turnkeeper.EventBlockStart:
		p.kind, p.text = DataOf[turnevents.BlockStartData](e).Kind, ""
	case turnkeeper.EventBlockDelta:
		p.streams(e)
	case turnkeeper.EventToolStarted:
		p.setStatus("  " + term.OneLine(DataOf[turnevents.ToolData](e).Name, 64) + " runs …")
	case turnkeeper.EventToolResult:
		p.toolEnds(e)
	case turnkeeper.EventRoundStop:
		p.roundEnds(e)
	case turnkeeper.EventRoundRollback:
		p.say(p.Paint(term.Warned, "  round "+fmt.Sprint(e.Round)+" is discarded: ") + term.OneLine(
			DataOf[turnevents.RollbackData](e).Reason, p.Columns))
	case turnkeeper.EventTurnComplete, turnkeeper.EventTurnError:
		p.turnEnds(e)
	}
}

func (p *Progress) waits(e turnkeeper.Event) {
	data := DataOf[turnevents.TurnWaitingData](e)
	text := "  the turn waits for " + data.For
	if names := data.Names(); names != "" {
		text += ": " + names
	}
	p.say("  " + term.OneLine(text, max(p.Columns-3, 0)))
}

func (p *Progress) roundStarts(e turnkeeper.Event) {
	data := DataOf[turnevents.RoundStartData](e)
	text := fmt.Sprintf("  round %d of %d", e.Round, data.Of)
	if data.Final {
		text += ", the last"
	}
	if p.live {
		p.setStatus(text + ": asking the model …")
		return
	}
	p.say(text)
}

// streams shows the end of the text that the model has written so far. It does
// not show streamed arguments: a call is shown when it ends.
func (p *Progress) streams(e turnkeeper.Event) {
	head := fmt.Sprintf("  round %d: ", p.round)
	switch {
	case !p.live:
		return
	case p.kind == "thinking":
		p.setStatus(head + "the model thinks …")
		return
	case p.kind != "text":
		return
	}
	p.text += DataOf[turnevents.BlockDeltaData](e).Text
	p.text = p.text[max(0, len(p.text)-4*p.Columns):]
	tail := strings.ToValidUTF8(term.OneLine(p.text, 0), "")
	p.setStatus(head + term.CutLeft(tail, p.Columns-term.Width(head)-1))
}

func (p *Progress) toolEnds(e turnkeeper.Event) {
	data := DataOf[turnevents.ToolData](e)
	line := "  " + p.Paint(term.ToneOf(data.State), term.SignOf(data.State)) + " " + term.OneLine(data.Name, 64)
	facts := ""
	if data.State != turnkeeper.CallSucceeded {
		facts = " " + string(data.State)
	}
	if data.Millis > 0 {
		facts += " " + term.Exact(time.Duration(data.Millis)*time.Millisecond)
	}
	room := 0
	if p.Columns > 0 {
		room = max(p.Columns-term.Width(data.Name)-term.Width(facts)-6, 10)
	}
	p.say(line + p.Paint(term.Dim, facts+"  "+term.OneLine(data.Preview, room)))
}

// roundEnds prints model, calls and tokens of a round, with verbose.
func (p *Progress) roundEnds(e turnkeeper.Event) {
	data := DataOf[turnevents.RoundStopData](e)
	if !p.verbose {
		p.wipe()
		return
	}
	p.say(p.Paint(term.Dim, fmt.Sprintf("  round %d done: %s, %s, %s tokens", e.Round, term.OneLine(data.Model, 64),
		term.Plural(data.Calls, "tool call"), term.Thousands(data.Usage.Total()))))
}

func (p *Progress) turnEnds(e turnkeeper.Event) {
	data := DataOf[turnevents.TurnEndData](e)
	if data.Retry {
		p.say(p.Paint(term.Warned, "  the turn failed; another turn will retry the message"))
		return
	}
	if p.verbose {
		line := fmt.Sprintf("  %s after %s and %s", data.State, term.Plural(data.Rounds, "round"),
			term.Plural(data.Calls, "tool call"))
		if data.StopReason != turnkeeper.StopNone {
			line += fmt.Sprintf(" (%s)", data.StopReason)
		}
		p.say(p.Paint(term.Dim, line))
	}
}

// DataOf decodes an event's data. Fields that a newer worker wrote differently
// stay zero.
func DataOf[T any](e turnkeeper.Event) (data T) {
	_ = json.Unmarshal(e.Data, &data)
	return data
}
