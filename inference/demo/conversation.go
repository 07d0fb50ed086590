package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"turnkeeper/inference"
)

// A conversation is the part of a request that scripts use.
type conversation struct {
	system  string
	message string    // the user's last message
	notice  string    // the newest notice after it; empty: none
	rounds  int       // answers since the message
	played  int       // newest step of a file's script that asked for a call since the message; 0: none
	results []result  // of the calls since the message
	tools   toolNames // that may be called now
}

type result struct {
	name, arguments, text string
}

type toolNames map[string]bool

// noticeHead is the beginning of each notice in a turn.
const noticeHead = "# System Notice"

func read(req inference.Request) conversation {
	c := conversation{tools: toolNames{}}
	calls := map[string]inference.Call{}
	for i, m := range req.Messages {
		switch m.Role {
		case inference.RoleSystem:
			c.system += m.Text + "\n"
		case inference.RoleUser:
			if i > 0 && c.message != "" && strings.HasPrefix(m.Text, noticeHead) {
				c.notice = m.Text
				continue
			}
			c.message, c.notice, c.rounds, c.played, c.results = m.Text, "", 0, 0, nil
			clear(calls)
		case inference.RoleAssistant:
			c.rounds++
			for _, call := range m.Calls {
				calls[call.ID] = call
				c.played = max(c.played, stepOfCall(call.ID))
			}
		case inference.RoleTool:
			call := calls[m.CallID]
			name := m.Tool
			if name == "" {
				name = call.Name
			}
			c.results = append(c.results, result{name, call.Arguments, m.Text})
		}
	}
	if req.ToolChoice != inference.ToolChoiceNone {
		for _, tool := range req.Tools {
			c.tools[tool.Name] = true
		}
	}
	return c
}

// orAnswer removes the calls of a step if none may be made. If the step is then empty, it
// becomes the default answer.
func (c conversation) orAnswer(next step) step {
	if len(c.tools) == 0 {
		next.Calls = nil
	}
	if next.Text == "" && len(next.Calls) == 0 {
		next.Text = c.answer()
	}
	return next
}

// planned returns the next step of a fenced script, or of the built-in one.
func (c conversation) planned() (step, error) {
	steps, found, err := fenced(c.system)
	if !found && err == nil {
		steps, found, err = fenced(c.message)
	}
	switch {
	case err != nil:
		return step{}, err
	case !found:
		return step{Calls: c.calls()}, nil
	case c.rounds < len(steps):
		return steps[c.rounds], nil
	}
	return step{}, nil
}

var fence = regexp.MustCompile("(?s)```demo[ \t]*\r?\n(.*?)```")

// fenced parses the steps of a fenced block in text.
func fenced(text string) (steps []step, found bool, err error) {
	block := fence.FindStringSubmatch(text)
	if block == nil {
		return nil, false, nil
	}
	decoder := json.NewDecoder(strings.NewReader(block[1]))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&steps); err != nil {
		return nil, true, fmt.Errorf("the demo script is not a JSON array of steps with text and calls: %w", err)
	}
	for i, s := range steps {
		for j, call := range s.Calls {
			switch {
			case call.Name == "":
				return nil, true, fmt.Errorf("call %d of step %d of the demo script has no name", j+1, i+1)
			case len(call.Arguments) == 0:
				s.Calls[j].Arguments = json.RawMessage(`{}`)
			default:
				var compact bytes.Buffer
				if json.Compact(&compact, call.Arguments) == nil {
					s.Calls[j].Arguments = compact.Bytes()
				}
			}
		}
	}
	if decoder.More() {
		return nil, true, errors.New("the demo script has text after its array of steps")
	}
	return steps, true, nil
}

var (
	address  = regexp.MustCompile(`https?://[^\s"'<>)\]]+`)
	fileName = regexp.MustCompile(`\b[\w-][\w./-]*\.[A-Za-z][A-Za-z0-9]{0,7}\b`)
	remember = regexp.MustCompile(
		`(?i)\b(remember|make a note|note (that|down|this)|write (it|this|that)? ?down|save)\b`)
	recall = regexp.MustCompile(`(?i)\b(notes?|recall|remembered|remember what)\b`)
)

// calls returns the next calls of the built-in script. If there are none, it answers.
func (c conversation) calls() []call {
	switch c.rounds {
	case 0:
		return c.firstCalls()
	case 1:
		return c.lookInside()
	}
	return nil
}

// firstCalls returns a call of every declared tool that fits the message.
func (c conversation) firstCalls() []call {
	var calls []call
	add := func(name string, arguments map[string]string) {
		if c.tools[name] {
			calls = append(calls, ask(name, arguments))
		}
	}
	add("clock", map[string]string{})
	url := strings.TrimRight(address.FindString(c.message), ".,;:!?")
	if url != "" {
		add("http_get", map[string]string{"url": url})
	}
	if name := fileName.FindString(address.ReplaceAllString(c.message, " ")); name != "" && c.tools["read_file"] {
		add("read_file", map[string]string{"path": name})
	} else {
		add("list_files", map[string]string{})
	}
	if remember.MatchString(c.message) {
		add("note_write", map[string]string{"name": "demo", "text": shorten(c.message, 1000)})
	} else if recall.MatchString(c.message) {
		add("note_read", map[string]string{})
	}
	return calls
}

// lookInside returns a call that reads the first listed file.
func (c conversation) lookInside() []call {
	if !c.tools["read_file"] {
		return nil
	}
	for _, r := range c.results {
		if r.name != "list_files" {
			continue
		}
		for line := range strings.Lines(r.text) {
			name, _, isFile := strings.Cut(strings.TrimSpace(line), "\t")
			if isFile && name != "" {
				return []call{ask("read_file", map[string]string{"path": name})}
			}
		}
	}
	return nil
}

const howTo = "For real answers set OPENAI_API_KEY (or configure any OpenAI-compatible endpoint under providers) " +
	"and name its model in the agent's file, such as `model: openai/gpt-5-mini`."

// answer returns the default answer, which quotes the message and the tools' results.
func (c conversation) answer() string {
	var b strings.Builder
	b.WriteString("This answer comes from Turnkeeper's demo script, not from a language model.\n\n")
	if message := strings.TrimSpace(fence.ReplaceAllString(c.message, "")); message != "" {
		fmt.Fprintf(&b, "You wrote: %q\n", shorten(message, 200))
	}
	if len(c.results) == 0 {
		b.WriteString("No tool was called for it.\n")
	} else {
		b.WriteString("The tools that I called for it said:\n")
	}
	for _, r := range c.results {
		fmt.Fprintf(&b, "- %s: %s\n", r.name, shorten(oneLine(r.text), 200))
	}
	return b.String() + "\n" + howTo
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// shorten cuts a text to n characters.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
