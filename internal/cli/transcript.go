package cli

import (
	"fmt"
	"strings"
	"time"

	"turnkeeper"
	turnevents "turnkeeper/agentturn/transcript"
)

// A transcript prints a turn's events, in order, for people to read while they
// come. What a block says is printed as it streams.
type transcript struct {
	*screen
	kind   string          // of the block that streams
	inLine bool            // the line is not ended
	text   strings.Builder // of the newest text block, to know a reply that was said
	failed error           // of the newest print
}

func newTranscript(s *screen) *transcript { return &transcript{screen: s} }

// show prints one event. It fails when nobody reads any more.
func (p *transcript) show(e turnkeeper.Event) error {
	switch e.Type {
	case turnkeeper.EventTurnStart:
		data := dataOf[turnevents.TurnStartData](e)
		p.say(bold, fmt.Sprintf("turn %d", e.TurnID), fmt.Sprintf("of %s, for message %d, attempt %d", oneLine(data.Agent, 64), data.Message, data.Attempt))
	case turnkeeper.EventTurnResumed:
		p.say(warned, "↻ the turn goes on", fmt.Sprintf("dispatch %d", dataOf[turnevents.TurnResumedData](e).Dispatch))
	case turnkeeper.EventTurnWaiting:
		p.say(active, "… the turn waits for", oneLine(strings.Join(dataOf[turnevents.TurnWaitingData](e).Calls, ", "), 0))
	case turnkeeper.EventRoundStart:
		p.round(e)
	case turnkeeper.EventBlockStart:
		p.block(dataOf[turnevents.BlockStartData](e))
	case turnkeeper.EventBlockDelta:
		p.stream(dataOf[turnevents.BlockDeltaData](e).Text)
	case turnkeeper.EventBlockStop:
		p.endLine()
	case turnkeeper.EventToolStarted:
		p.say(active, "▸ "+oneLine(dataOf[turnevents.ToolData](e).Name, 64)+" runs", dataOf[turnevents.ToolData](e).Call)
	case turnkeeper.EventToolResult:
		p.tool(dataOf[turnevents.ToolData](e))
	case turnkeeper.EventNotice:
		p.notice(dataOf[turnevents.NoticeData](e).Text)
	case turnkeeper.EventRoundStop:
		data := dataOf[turnevents.RoundStopData](e)
		p.say(dim, fmt.Sprintf("round %d done", e.Round), fmt.Sprintf("%s, %s tokens", oneLine(data.Model, 64), thousands(data.Usage.Total())))
	case turnkeeper.EventRoundRollback:
		p.text.Reset()
		p.say(warned, fmt.Sprintf("↶ round %d is taken back: what it said above is void", e.Round), oneLine(dataOf[turnevents.RollbackData](e).Reason, 0))
	case turnkeeper.EventTurnComplete, turnkeeper.EventTurnError:
		p.last(dataOf[turnevents.TurnEndData](e))
	}
	return p.failed
}

// say prints a line of its own: what happened, and beside it more.
func (p *transcript) say(t tone, what, beside string) {
	p.endLine()
	p.put(strings.TrimRight(p.in(t, what)+"  "+p.in(dim, beside), " ") + "\n")
}

func (p *transcript) put(text string) { _, p.failed = fmt.Fprint(p.w, text) }

func (p *transcript) endLine() {
	if p.inLine {
		p.put("\n")
		p.inLine = false
	}
}

// end leaves the screen in order.
func (p *transcript) end() { p.endLine() }

func (p *transcript) round(e turnkeeper.Event) {
	data := dataOf[turnevents.RoundStartData](e)
	beside := ""
	if data.Final {
		beside = "the last: no tools"
	}
	p.say(bold, fmt.Sprintf("── round %d of %d", e.Round, data.Of), beside)
}

func (p *transcript) block(data turnevents.BlockStartData) {
	p.endLine()
	p.kind = data.Kind
	switch data.Kind {
	case "text":
		p.text.Reset()
	case "thinking":
		p.put(p.in(dim, "(thinks) "))
		p.inLine = true
	case "tool_use":
		p.put(p.in(dim, "calls ") + p.in(bold, oneLine(data.Tool, 64)) + " ")
		p.inLine = true
	}
}

// stream goes on with a block. Line ends are the model's own.
func (p *transcript) stream(text string) {
	if text == "" {
		return
	}
	if p.kind == "text" {
		p.text.WriteString(text)
	}
	shown := plain(text)
	if p.kind != "text" {
		shown = p.in(dim, shown)
	}
	p.put(shown)
	p.inLine = !strings.HasSuffix(text, "\n")
}

func (p *transcript) tool(data turnevents.ToolData) {
	facts := string(data.State)
	if data.Millis > 0 {
		facts += " " + exact(time.Duration(data.Millis)*time.Millisecond)
	}
	p.say(toneOf(data.State), signOf(data.State)+" "+oneLine(data.Name, 64), facts+"  "+oneLine(data.Preview, previewColumns))
}

func (p *transcript) notice(text string) {
	p.endLine()
	for line := range strings.Lines(text) {
		p.put(strings.TrimRight(p.in(dim, "  │ "+oneLine(line, 0)), " ") + "\n")
	}
}

// last prints the end, and the reply where the model has not just said it.
func (p *transcript) last(data turnevents.TurnEndData) {
	if data.Reply != "" && strings.TrimSpace(data.Reply) != strings.TrimSpace(p.text.String()) {
		p.say(bold, "reply", "")
		p.put(strings.TrimRight(plain(data.Reply), "\n") + "\n")
	}
	facts := plural(data.Rounds, "round") + ", " + plural(data.Calls, "tool call")
	if data.StopReason != "" && data.StopReason != turnkeeper.StopNone {
		facts += ", stopped by " + string(data.StopReason)
	}
	if data.Retry {
		facts += "; another turn will try"
	}
	p.say(toneOf(data.State), signOf(data.State)+" "+string(data.State), facts)
}
