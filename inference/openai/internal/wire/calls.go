package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/internal/loose"
	"turnkeeper/internal/kept"
)

// Declarations holds the newest declaration of each tool, because most requests declare the same tools. It is safe for
// concurrent use.
type Declarations struct {
	make func(inference.ToolDefinition) Encoded

	mu  sync.Mutex
	all map[string]declaration // by the tool's name
}

// A declaration is the JSON of a tool's definition.
type declaration struct {
	inference.ToolDefinition
	text Encoded
}

// maxDeclarations is the number of tools at which the cache starts again.
const maxDeclarations = 1000

// NewDeclarations returns an empty cache of what makes returns for tools.
func NewDeclarations(makes func(inference.ToolDefinition) Encoded) *Declarations {
	return &Declarations{make: makes, all: map[string]declaration{}}
}

// Of returns the declarations of tools, once for each name.
func (c *Declarations) Of(tools []inference.ToolDefinition) (texts []Encoded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	declared := make(map[string]bool, len(tools))
	for _, tool := range tools {
		if !declared[tool.Name] {
			declared[tool.Name] = true
			texts = append(texts, c.of(tool))
		}
	}
	return texts
}

func (c *Declarations) of(tool inference.ToolDefinition) Encoded {
	known, ok := c.all[tool.Name]
	if ok && known.Description == tool.Description && bytes.Equal(known.Parameters, tool.Parameters) {
		return known.text
	}
	if len(c.all) >= maxDeclarations {
		clear(c.all)
	}
	made := declaration{tool, c.make(tool)}
	made.Parameters = bytes.Clone(tool.Parameters)
	c.all[tool.Name] = made
	return made.text
}

// Len returns the number of declarations that are kept.
func (c *Declarations) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// FormerTools returns definitions of the tools of earlier calls, sorted by their names as ToolName returns them.
// Servers refuse calls in the history of a request without tools.
func FormerTools(messages []inference.Message) (tools []inference.ToolDefinition) {
	names := map[string]bool{}
	for _, m := range messages {
		if m.Role == inference.RoleAssistant {
			for _, c := range m.Calls {
				names[ToolName(c.Name)] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		tools = append(tools, inference.ToolDefinition{Name: name, Description: "No longer available."})
	}
	return tools
}

// Schema returns the parameters of a tool with the two members that some servers require.
func Schema(parameters json.RawMessage) Object {
	s := Object{"type": "object", "properties": Object{}}
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

// ToolName returns a name that servers accept in a history. Models call tools by names that
// are not valid.
func ToolName(name string) string {
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

// Arguments returns the arguments of a call if they are a JSON object, else an object that quotes their
// beginning.
func Arguments(arguments string) string {
	trimmed := strings.TrimSpace(arguments)
	if loose.IsObject([]byte(trimmed)) {
		return strings.ToValidUTF8(trimmed, "\uFFFD")
	}
	if trimmed == "" || trimmed == "null" {
		return "{}"
	}
	runes := []rune(trimmed)
	quoted,
		_ := Encode(Object{"malformed_arguments": string(runes[:min(len(runes), 500)])}) //nolint:errchkjson // a string
	return string(quoted)
}

// An IDFormat is the format of the ids of calls that a server accepts.
type IDFormat string

// The id formats. Any other value means 1 to 64 visible ASCII characters.
const (
	IDNine IDFormat = "nine" // exactly 9 letters and digits
	IDWord IDFormat = "word" // 1 to 64 letters, digits, _ and -
)

// wordID matches the call ids that Anthropic's models accept.
var wordID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// An IDSet is the set of ids that are in use in a conversation. Most of them come from its earlier requests.
type IDSet struct {
	all   kept.List[string]
	asked int             // how often Has was called
	index map[string]bool // all; nil: not made yet
}

// maxAsked is how often an IDSet is read through. The next request of a conversation asks a few times, which costs less
// than an index of the conversation.
const maxAsked = 16

// NewIDSet returns a set of the ids that were taken.
func NewIDSet(taken kept.List[string]) *IDSet { return &IDSet{all: taken} }

// Has reports whether an id is taken.
func (s *IDSet) Has(id string) bool {
	if s.index != nil {
		return s.index[id]
	}
	if s.asked++; s.asked <= maxAsked {
		return slices.Contains(s.all.Items(), id)
	}
	s.index = map[string]bool{}
	for _, taken := range s.all.Items() {
		s.index[taken] = true
	}
	return s.index[id]
}

// Add takes ids.
func (s *IDSet) Add(ids ...string) {
	s.all = s.all.Append(ids...)
	if s.index != nil {
		for _, id := range ids {
			s.index[id] = true
		}
	}
}

// All returns the ids that were taken, in order.
func (s *IDSet) All() kept.List[string] { return s.all }

// IDs returns unique call ids that the server accepts. The same history gives the same
// ids, which keeps prompt caches valid.
type IDs struct {
	IDSet

	format IDFormat
}

// NewIDs returns the IDs of one request, of which some were taken for its first messages.
func NewIDs(format IDFormat, taken kept.List[string]) *IDs {
	return &IDs{IDSet{all: taken}, format}
}

// Take returns the id that is sent for the next call, which has an id.
func (w *IDs) Take(id string) string {
	sent := id
	for n := 1; !w.fits(sent) || w.Has(sent); n++ {
		sent = shortID(id, n)
	}
	w.Add(sent)
	return sent
}

func (w *IDs) fits(id string) bool {
	if w.format == IDWord {
		return wordID.MatchString(id)
	}
	if w.format == IDNine {
		return len(id) == 9 && strings.IndexFunc(id, func(r rune) bool { return !isAlnum(r) }) < 0
	}
	return id != "" && len(id) <= 64 && strings.IndexFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// shortID returns the nth replacement of an id: 9 letters and digits, which every server
// accepts.
func shortID(id string, n int) string {
	sum := sha256.Sum256(bytes.Join([][]byte{[]byte(id), []byte(strconv.Itoa(n))}, []byte{0}))
	s := new(big.Int).SetBytes(sum[:]).Text(36)
	return ("c" + s + "00000000")[:9]
}

// noResult is the result of a call that has none in the request.
const noResult = "error: there is no record of this call's result"

// Results finds the results of calls in the messages of a request.
type Results struct {
	in       []inference.Message
	used     map[int]bool // indices in in of the results that were returned
	complete bool
}

// NewResults returns the Results of one request.
func NewResults(messages []inference.Message) *Results {
	return &Results{in: messages, used: map[int]bool{}, complete: true}
}

// Of returns the result of the call with this id in the message at index at: the first unused one before another
// message reuses the id. A call without one gets a text that says so.
func (r *Results) Of(at int, id string) string {
	for i := at + 1; i < len(r.in); i++ {
		m := r.in[i]
		if m.Role == inference.RoleTool && m.CallID == id && !r.used[i] {
			r.used[i] = true
			return m.Text
		}
		if m.Role == inference.RoleAssistant && slices.ContainsFunc(m.Calls, func(c inference.Call) bool {
			return c.ID == id
		}) {
			break
		}
	}
	r.complete = false
	return noResult
}

// Complete reports whether each call had a result, so that messages that follow change nothing of what was written.
func (r *Results) Complete() bool { return r.complete }
