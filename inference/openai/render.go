package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
)

// An object is a JSON object of a request.
type object map[string]any

var errNoMessage = errors.New("the request has no message; it needs at least one")

// encoded is JSON as appendJSON writes it.
type encoded []byte

// buffers holds buffers in which bodies are made. A body is copied out of its buffer, so it takes no more
// memory than it needs while its call runs.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxBuffer is the size up to which a buffer is used again.
const maxBuffer = 256 << 10

// inBuffer calls use with an empty buffer, which use returns, grown. The buffer must not be used later.
func inBuffer(use func(b []byte) []byte) {
	buffer := buffers.Get().(*[]byte) //nolint:forcetypeassert // it holds nothing else
	if *buffer = use((*buffer)[:0]); cap(*buffer) <= maxBuffer {
		buffers.Put(buffer)
	}
}

// render returns the body of a request. Strict servers accept it for any request: every call
// has an object as arguments, a unique id and exactly one result after it; there is no result
// without a call, no empty list of tools, and no null message.
func render(provider string, p Profile, req inference.Request) (whole []byte, err error) {
	if p.API == APIResponses {
		return renderResponses(provider, p, req)
	}
	inBuffer(func(b []byte) []byte {
		messages, failed := renderMessages(b, provider, p, req)
		if err = failed; err == nil && len(messages) == 0 {
			err = errNoMessage
		}
		if err != nil {
			return messages
		}
		body := renderRest(p, req)
		body["messages"] = encoded(messages)
		inBuffer(func(b []byte) []byte {
			if b, err = appendJSON(b, body); err == nil {
				whole = bytes.Clone(b)
			}
			return b
		})
		return messages
	})
	return whole, err
}

// renderRest returns the members of a body other than its messages.
func renderRest(p Profile, req inference.Request) object {
	body := object{"model": req.Model}
	if !p.NoStream {
		body["stream"] = true
		if !p.NoStreamUsage {
			body["stream_options"] = encoded(`{"include_usage":true}`)
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
		if _, taken := body[name]; !taken && name != "messages" {
			body[name] = value
		}
	}
	return body
}

// appendJSON appends what encode returns. For most values of a request it uses no reflection.
func appendJSON(b []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case string:
		return appendText(b, v), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case encoded:
		return append(b, v...), nil
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
		return appendList(b, v)
	case []encoded:
		return appendList(b, v)
	}
	text, err := encode(v)
	return append(b, text...), err
}

func appendList[T object | encoded](b []byte, list []T) (_ []byte, err error) {
	b = append(b, '[')
	for i, element := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendJSON(b, element); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
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

func renderTools(req inference.Request) []encoded {
	var tools []encoded
	declared := make(map[string]bool, len(req.Tools))
	for _, tool := range req.Tools {
		if !declared[tool.Name] {
			declared[tool.Name] = true
			tools = append(tools, declarations.of(tool))
		}
	}
	return tools
}

// declarations holds the newest declaration of each tool, because most requests declare the same tools.
var declarations = declarationCache{all: map[string]declaration{}}

type declarationCache struct {
	sync.Mutex
	all map[string]declaration // by the tool's name
}

// A declaration is the JSON of a tool's definition.
type declaration struct {
	inference.ToolDefinition
	text encoded
}

// maxDeclarations is the number of tools at which the cache starts again.
const maxDeclarations = 1000

func (c *declarationCache) of(tool inference.ToolDefinition) encoded {
	c.Lock()
	defer c.Unlock()
	known, ok := c.all[tool.Name]
	if ok && known.Description == tool.Description && bytes.Equal(known.Parameters, tool.Parameters) {
		return known.text
	}
	if len(c.all) >= maxDeclarations {
		clear(c.all)
	}
	made := declaration{tool, function(toolName(tool.Name), tool.Description, tool.Parameters)}
	made.Parameters = bytes.Clone(tool.Parameters)
	c.all[tool.Name] = made
	return made.text
}

// formerTools returns declarations of the tools of earlier calls.
func formerTools(messages []inference.Message) []encoded {
	names := map[string]bool{}
	for _, m := range messages {
		if m.Role == inference.RoleAssistant {
			for _, c := range m.Calls {
				names[toolName(c.Name)] = true
			}
		}
	}
	var tools []encoded
	for _, name := range slices.Sorted(maps.Keys(names)) {
		tools = append(tools, function(name, "No longer available.", nil))
	}
	return tools
}

func function(name, description string, parameters json.RawMessage) encoded {
	f := object{"name": name, "parameters": schema(parameters)}
	if description != "" {
		f["description"] = description
	}
	text, _ := appendJSON(nil, object{"type": "function", "function": f}) // texts, and JSON that was decoded
	return text
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
