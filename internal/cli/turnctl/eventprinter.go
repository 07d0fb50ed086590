package turnctl

import (
	"fmt"
	"strings"
	"time"

	"turnkeeper"
	turnevents "turnkeeper/agentturn/turnevents"
	"turnkeeper/internal/cli/follow"
	"turnkeeper/internal/cli/term"
)

// An eventPrinter prints a turn's events as text, in order, as they come.
type eventPrinter struct {
	*term.Screen
	kind   string          // of the streaming block
	inLine bool            // the line is not ended
	text   strings.Builder // of the newest text block, to recognise the reply
	failed error           // of the newest write
}

func newEventPrinter(s *term.Screen) *eventPrinter { return &eventPrinter{Screen: s} }

// show prints one event. It returns the error of the write.
func (p *eventPrinter) show(e turnkeeper.Event) error {
	switch e.Type {
	case turnkeeper.EventTurnStart:
		data := follow.DataOf[turnevents.TurnStartData](e)
		p.say(term.Bold, fmt.Sprintf("turn %d", e.TurnID), fmt.Sprintf("of %s, for message %d, attempt %d",
			term.OneLine(data.Agent, 64), data.Message, data.Attempt))
	case turnkeeper.EventTurnResumed:
		p.say(term.Warned, "↻ the turn continues", fmt.Sprintf("dispatch %d",
			follow.DataOf[turnevents.TurnResumedData](e).Dispatch))
	case turnkeeper.EventAskOpened:
		data := follow.DataOf[turnevents.AskData](e)
		p.say(term.Active, "? asks a person: "+term.OneLine(data.Ask, 0),
			term.OneLine(strings.TrimSpace(data.Tool+"  "+data.Reason), 0))
	case turnkeeper.EventAskClosed:
		data := follow.DataOf[turnevents.AskData](e)
		p.say(term.Bold, "? "+term.OneLine(data.Ask, 0)+": "+string(data.State), term.OneLine(data.Tool, 0))
	case turnkeeper.EventTurnWaiting:
		data := follow.DataOf[turnevents.TurnWaitingData](e)
		p.say(term.Active, "… the turn waits for "+term.OneLine(data.For, 0), term.OneLine(data.Names(), 0))
	case turnkeeper.EventRoundStart:
		p.round(e)
	case turnkeeper.EventBlockStart:
		p.block(follow.DataOf[turnevents.BlockStartData](e))
	case turnkeeper.EventBlockDelta:
		data := follow.DataOf[turnevents.BlockDeltaData](e)
		p.stream(data.Text + data.Thinking + data.Arguments)
	case turnkeeper.EventBlockStop:
		p.endLine()
	case turnkeeper.EventToolStarted:
		p.say(term.Active, "▸ "+term.OneLine(follow.DataOf[turnevents.ToolData](e).Name, 64)+" runs",
			follow.DataOf[turnevents.ToolData](e).Call)
	case turnkeeper.EventToolResult:
		p.tool(follow.DataOf[turnevents.ToolData](e))
	case turnevents.EventsExpired:
		data := follow.DataOf[turnevents.EventsExpiredData](e)
		p.say(term.Warned, fmt.Sprintf("events %d to %d were deleted by retention", data.First, data.Last), "")
	case turnkeeper.EventNotice:
		p.notice(follow.DataOf[turnevents.NoticeData](e).Text)
	case turnkeeper.EventRoundStop:
		data := follow.DataOf[turnevents.RoundStopData](e)
		p.say(term.Dim, fmt.Sprintf("round %d done", e.Round), fmt.Sprintf("%s, %s tokens", term.OneLine(data.Model,
			64), term.Thousands(data.Usage.Total())))
	case turnkeeper.EventRoundRollback:
		p.text.Reset()
		p.say(term.Warned, fmt.Sprintf("↶ round %d is discarded: its text above is void", e.Round),
			term.OneLine(follow.DataOf[turnevents.RollbackData](e).Reason, 0))
	case turnkeeper.EventTurnComplete, turnkeeper.EventTurnError:
		p.last(follow.DataOf[turnevents.TurnEndData](e))
	}
	return p.failed
}

// say prints a line: what happened, and details in a dim colour.
func (p *eventPrinter) say(t term.Tone, what, beside string) {
	p.endLine()
	p.put(strings.TrimRight(p.Paint(t, what)+"  "+p.Paint(term.Dim, beside), " ") + "\n")
}

func (p *eventPrinter) put(text string) { _, p.failed = fmt.Fprint(p.W, text) }

func (p *eventPrinter) endLine() {
	if p.inLine {
		p.put("\n")
		p.inLine = false
	}
}

// end ends the line.
func (p *eventPrinter) end() { p.endLine() }

func (p *eventPrinter) round(e turnkeeper.Event) {
	data := follow.DataOf[turnevents.RoundStartData](e)
	beside := ""
	if data.Final {
		beside = "the last: no tools"
	}
	p.say(term.Bold, fmt.Sprintf("── round %d of %d", e.Round, data.Of), beside)
}

func (p *eventPrinter) block(data turnevents.BlockStartData) {
	p.endLine()
	p.kind = data.Kind
	switch data.Kind {
	case "text":
		p.text.Reset()
	case "thinking":
		p.put(p.Paint(term.Dim, "(thinks) "))
		p.inLine = true
	case "tool_use":
		p.put(p.Paint(term.Dim, "calls ") + p.Paint(term.Bold, term.OneLine(data.Tool, 64)) + " ")
		p.inLine = true
	}
}

// stream prints more text of a block, with the model's line ends.
func (p *eventPrinter) stream(text string) {
	if text == "" {
		return
	}
	if p.kind == "text" {
		p.text.WriteString(text)
	}
	shown := term.Plain(text)
	if p.kind != "text" {
		shown = p.Paint(term.Dim, shown)
	}
	p.put(shown)
	p.inLine = !strings.HasSuffix(text, "\n")
}

func (p *eventPrinter) tool(data turnevents.ToolData) {
	facts := string(data.State)
	if data.Millis > 0 {
		facts += " " + term.Exact(time.Duration(data.Millis)*time.Millisecond)
	}
	p.say(term.ToneOf(data.State), term.SignOf(data.State)+" "+term.OneLine(data.Name, 64),
		facts+"  "+term.OneLine(data.Preview, term.PreviewColumns))
}

func (p *eventPrinter) notice(text string) {
	p.endLine()
	for line := range strings.Lines(text) {
		p.put(strings.TrimRight(p.Paint(term.Dim, "  │ "+term.OneLine(line, 0)), " ") + "\n")
	}
}

// last prints the end of the turn, and the reply unless it is the last text block.
func (p *eventPrinter) last(data turnevents.TurnEndData) {
	if data.Reply != "" && strings.TrimSpace(data.Reply) != strings.TrimSpace(p.text.String()) {
		p.say(term.Bold, "reply", "")
		p.put(strings.TrimRight(term.Plain(data.Reply), "\n") + "\n")
	}
	facts := term.Plural(data.Rounds, "round") + ", " + term.Plural(data.Calls, "tool call")
	if data.StopReason != "" && data.StopReason != turnkeeper.StopNone {
		facts += ", stopped by " + string(data.StopReason)
	}
	if data.Retry {
		facts += "; another turn will retry the message"
	}
	p.say(term.ToneOf(data.State), term.SignOf(data.State)+" "+string(data.State), facts)
}
