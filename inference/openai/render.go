package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
)

// An object is a JSON object of a request.
type object map[string]any

var errNoMessage = errors.New("the request has no message; it needs at least one")

// render returns the body of a request. Strict servers accept it for any request: every call
// has an object as arguments, a unique id and exactly one result after it; there is no result
// without a call, no empty list of tools, and no null message.
func render(provider string, p Profile, req inference.Request) ([]byte, error) {
	messages := renderMessages(provider, p, req.Messages)
	if len(messages) == 0 {
		return nil, errNoMessage
	}
	body := object{"model": req.Model, "messages": messages}
	if !p.NoStream {
		body["stream"] = true
		if !p.NoStreamUsage {
			body["stream_options"] = object{"include_usage": true}
		}
	}
	tools, choice := renderTools(req), req.ToolChoice
	if len(tools) == 0 {
		// Servers refuse calls in the history of a request without tools.
		tools, choice = formerTools(req.Messages), inference.ToolChoiceNone
	}
	if len(tools) > 0 {
		body["tools"] = tools
		if choice == inference.ToolChoiceNone && !p.NoToolChoice {
			body["tool_choice"] = "none"
		}
	}
	if req.MaxOutputTokens > 0 {
		body[cmp.Or(p.TokenField, "max_tokens")] = req.MaxOutputTokens
	}
	if req.Temperature != nil {
		body["temperature"] = *req.Temperature
	}
	if req.User != "" && !p.NoUser {
		body["user"] = req.User
	}
	for name, value := range p.Extra {
		if _, taken := body[name]; !taken {
			body[name] = value
		}
	}
	size := 4 << 10
	for _, m := range req.Messages {
		size += len(m.Text) + len(m.Raw) + 256*(1+len(m.Calls))
	}
	return appendJSON(make([]byte, 0, size), body)
}

// appendJSON appends what encode returns. For most values of a request it uses no reflection.
func appendJSON(b []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case string:
		return appendText(b, v), nil
	case object:
		b = append(b, '{')
		names := slices.AppendSeq(make([]string, 0, len(v)), maps.Keys(v))
		slices.Sort(names)
		for i, name := range names {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendJSON(append(appendText(b, name), ':'), v[name]); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case []object:
		b = append(b, '[')
		for i, element := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendJSON(b, element); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	}
	text, err := encode(v)
	return append(b, text...), err
}

// appendText appends a string as encode writes it.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0 // of what is not appended yet
	for i, r := range s {
		size, escape := 1, ""
		switch {
		case r == '"' || r == '\\':
			escape = `\` + string(r)
		case r == '\n':
			escape = `\n`
		case r == '\r':
			escape = `\r`
		case r == '\t':
			escape = `\t`
		case r == '\b':
			escape = `\b`
		case r == '\f':
			escape = `\f`
		case r < ' ' || r == '\u2028' || r == '\u2029':
			size, escape = utf8.RuneLen(r), fmt.Sprintf(`\u%04x`, r)
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			escape = `\ufffd`
		default:
			continue
		}
		b = append(append(b, s[from:i]...), escape...)
		from = i + size
	}
	return append(append(b, s[from:]...), '"')
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("cannot encode the request as JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func renderTools(req inference.Request) []object {
	var tools []object
	declared := map[string]bool{}
	for _, tool := range req.Tools {
		if !declared[tool.Name] {
			declared[tool.Name] = true
			tools = append(tools, function(toolName(tool.Name), tool.Description, tool.Parameters))
		}
	}
	return tools
}

// formerTools returns declarations of the tools of earlier calls.
func formerTools(messages []inference.Message) []object {
	names := map[string]bool{}
	for _, m := range messages {
		if m.Role == inference.RoleAssistant {
			for _, c := range m.Calls {
				names[toolName(c.Name)] = true
			}
		}
	}
	var tools []object
	for _, name := range slices.Sorted(maps.Keys(names)) {
		tools = append(tools, function(name, "No longer available.", nil))
	}
	return tools
}

func function(name, description string, parameters json.RawMessage) object {
	f := object{"name": name, "parameters": schema(parameters)}
	if description != "" {
		f["description"] = description
	}
	return object{"type": "function", "function": f}
}

// schema returns parameters with the two members that some servers require.
func schema(parameters json.RawMessage) object {
	s := object{"type": "object", "properties": object{}}
	var given map[string]json.RawMessage
	if json.Unmarshal(parameters, &given) != nil {
		return s
	}
	for name, value := range given {
		if !loose.IsNull(value) {
			s[name] = value
		}
	}
	return s
}

// toolName returns a name that servers accept in a history. Models call tools by names that
// are not valid.
func toolName(name string) string {
	name = strings.Map(func(r rune) rune {
		if isAlnum(r) || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
	if name == "" {
		return "unknown"
	}
	return name[:min(len(name), 64)]
}

func isAlnum(c rune) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
