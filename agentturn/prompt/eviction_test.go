package prompt

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
	"turnkeeper/internal/golden"
	"turnkeeper/internal/turnlog"
	"turnkeeper/tools"
)

// TestEviction compares requests with files: each contains a journal, and below it the
// request fitted into the window.
func TestEviction(t *testing.T) {
	files, err := filepath.Glob("testdata/window/*.txtar")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil || len(archive.Files) != 2 {
				t.Fatalf("%v: it must hold a journal and a request", err)
			}
			got := tell(t, readJournal(t, string(archive.Files[0].Data)))
			if golden.Updating() {
				archive.Files[1].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(archive.Files[1].Data), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A described is a turn before a request.
type described struct {
	*State
	model Model
	at    Moment
}

// readJournal parses the description of a turn, one fact per line:
//
//	window SIZE ANSWER
//	tools N CHARS              N tools with schemas of so many characters
//	readers                    stored results can be read
//	limit TOKENS | factor F | older N | final
//	past ID TEXT               an earlier turn, followed by its calls and its reply
//	message TEXT
//	round                      a round of this turn, followed by its calls
//	  call ID RESULT [OUTPUT]  OUTPUT: the id under which the whole result is stored
//	  page ID RESULT
//	  reply TEXT
//
// A TEXT or RESULT that is a number stands for so many characters.
func readJournal(t *testing.T, journal string) described {
	p := described{State: NewState(&turnlog.Record{Turn: turnkeeper.Turn{ID: 1000}},
		&agentdef.Definition{Prompt: "You test."}, Offer{Registry: &tools.Registry{}}, &Memory{})}
	p.model = Model{Provider: "main", Name: "model", Tokens: NewCounts(HeuristicTokens{}, "", nil)}
	var definitions []inference.ToolDefinition
	readers := false
	for line := range strings.Lines(journal) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		first, second, _ := strings.Cut(rest, " ")
		switch word {
		case "":
		case "window":
			p.model.Window, p.def.MaxOutputTokens = number(t, first), number(t, second)
		case "tools":
			for i := range number(t, first) {
				definitions = append(definitions, definition(fmt.Sprint("tool", i+1), number(t, second)))
			}
		case "readers":
			readers = true
		case "limit":
			p.refusals.tooLong = &refusal{p.model.key(), number(t, rest)}
		case "older":
			p.older = number(t, rest)
		case "factor":
			f, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				t.Fatal(err)
			}
			p.memory.calibrations.models = map[modelKey]modelCalibration{
				p.model.key(): {calibration: calibration{[]float64{f, f, f}}}}
		case "final":
			p.at.Final = true
		case "message":
			p.body = textOf(rest)
		case "past":
			p.history = append(p.history, turnlog.Past{TurnID: turnkeeper.TurnID(number(t, first)),
				Body: textOf(second)})
		case "round":
			p.at.Rounds = append(p.at.Rounds, turnkeeper.Round{Number: len(p.at.Rounds) + 1})
		case "call", "page":
			addCall(&p, word == "page", first, second)
		case "reply":
			p.history[len(p.history)-1].Reply = textOf(rest)
		default:
			t.Fatalf("%q says nothing", line)
		}
	}
	if readers {
		definitions = append(definitions, definition(turnkeeper.ToolGetContinuation, 60),
			definition(turnkeeper.ToolGetToolOutput, 60))
	}
	p.toolset = newToolset(definitions)
	return p
}

func definition(name string, chars int) inference.ToolDefinition {
	return inference.ToolDefinition{Name: name, Parameters: json.RawMessage(`{"type":"object","description":"` + textOf(
		strconv.Itoa(max(chars-34, 1))) + `"}`)}
}

// addCall adds a call to the current round or earlier turn.
func addCall(p *described, page bool, id, rest string) {
	result, output, _ := strings.Cut(rest, " ")
	rounds := &p.at.Rounds
	if len(p.at.Rounds) == 0 {
		past := &p.history[len(p.history)-1]
		if rounds = &past.Rounds; len(*rounds) == 0 {
			*rounds = []turnkeeper.Round{{Number: 1}}
		}
	}
	round := &(*rounds)[len(*rounds)-1]
	name := "look"
	if page {
		name = turnkeeper.ToolGetContinuation
	}
	round.Calls = append(round.Calls, turnkeeper.ToolCall{
		Key: turnkeeper.CallKey{Round: round.Number, Ordinal: len(round.Calls) + 1}, WireID: id, Name: name,
		Arguments: "{}",
		State:     turnkeeper.CallSucceeded, Shown: textOf(result), OutputID: turnkeeper.OutputID(output), Paging: page,
	})
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// textOf returns text, or, if text is a number, so many characters.
func textOf(text string) string {
	n, err := strconv.Atoi(text)
	if err != nil {
		return text
	}
	return strings.Repeat("words ", n/6+1)[:n]
}

// tell formats a request: the budget, then one line per message.
func tell(t *testing.T, p described) string {
	var b strings.Builder
	request, err := p.begin(p.model, p.at, "", nil)
	room := p.newEpochRoom(p.model, p.at)
	w := request.Recipe.Window
	if err != nil {
		return fmt.Sprintf("room %d\nnot sent: %s\n", room, err)
	}
	fmt.Fprintf(&b, "window %d = answer %d + safety %d + room %d\n", w.Size, w.Answer, w.Safety, room)
	fmt.Fprintf(&b, "request %d = (system %d + tools %d + history %d + turn %d + notice %d) x %g\n", request.Tokens,
		w.System, w.Tools, w.History, w.Turn, w.Notice, w.Factor)
	if err := paired(request.Messages); err != nil {
		t.Error(err)
	}
	if request.Tokens > room {
		t.Errorf("%d tokens are sent where %d have room", request.Tokens, room)
	}
	var names []string
	for _, tool := range request.Tools {
		names = append(names, tool.Name)
	}
	fmt.Fprintf(&b, "tools %s %s\n", strings.Join(names, " "), request.ToolChoice)
	for _, m := range request.Messages {
		fmt.Fprintf(&b, "%s %s%s\n", m.Role, m.CallID, shorten(m.Text))
		for _, call := range m.Calls {
			fmt.Fprintf(&b, "  calls %s %s\n", call.Name, call.ID)
		}
	}
	return strings.ReplaceAll(b.String(), " \n", "\n")
}

func shorten(text string) string {
	text = strings.ReplaceAll(strings.Replace(text, standingNote, "<note>", 1), "\n", "/")
	if rest := strings.TrimPrefix(text, "words words "); rest != text {
		return fmt.Sprintf(" (%d characters)", len(text))
	}
	return " " + text
}

// paired returns an error for a call without a result, or a result without a call.
func paired(messages []inference.Message) error {
	var open []string
	for _, m := range messages {
		switch {
		case m.Role == inference.RoleTool && (len(open) == 0 || open[0] != m.CallID):
			return fmt.Errorf("the result of %s answers no call", m.CallID)
		case m.Role == inference.RoleTool:
			open = open[1:]
		case len(open) > 0:
			return fmt.Errorf("the calls %v have no result", open)
		}
		for _, call := range m.Calls {
			open = append(open, call.ID)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("the calls %v have no result", open)
	}
	return nil
}
