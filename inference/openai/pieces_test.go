package openai_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/openai"
	"turnkeeper/internal/testrun"
)

// A style is a server's way to cut the calls of an answer into pieces.
type style struct {
	index      string // own, none, zero, or first: only in a call's first piece
	id         string // first, each, none, fresh (a new one in each piece), or same (for all calls)
	name       string // first, each, parts, last, or grown (each piece repeats what came before)
	emptyFirst bool   // the first piece has no arguments
	again      string // at the end: none, whole (the call), arguments, or empty
	interleave bool
}

func randomStyle(r *rand.Rand) style {
	s := style{
		index: one(r, "own", "own", "none", "zero", "first"), id: one(r, "first", "first", "each", "none",
			"fresh", "same"),
		name: one(r, "first", "first", "each", "parts", "last"), emptyFirst: r.IntN(2) == 0,
		again: one(r, "none", "none", "whole", "arguments", "empty"), interleave: r.IntN(3) == 0,
	}
	if s.name == "last" {
		s.index, s.again = "own", "none"
	}
	s.interleave = s.interleave && (s.index == "own" || s.id == "each") // nobody could put together the others
	return s
}

// oddTools are tools whose names are parts of each other.
var oddTools = []string{"pay", "prepay", "pal", "paypal", "read", "read_file", "clock"}

func randomCalls(r *rand.Rand) (calls []inference.Call) {
	for range 1 + r.IntN(3) {
		calls = append(calls, inference.Call{
			Name: one(r, oddTools...),
			Arguments: one(r, "", "{}", `{"a":1}`, `{"a":2}`, `{"a":"{}"}`, `{"s":"}{\"","deep":{"er":[{}]}}`,
				`{"a": "\\" }`),
		})
	}
	return calls
}

// cutInto returns the pieces of a call.
func (s style) cutInto(r *rand.Rand, call inference.Call, n int) (pieces []string) {
	arguments := cutText(r, call.Arguments)
	if s.emptyFirst && len(arguments) > 0 && arguments[0] != "" {
		arguments = slices.Insert(arguments, 0, "")
	}
	names := []string{call.Name}
	if (s.name == "parts" || s.name == "grown") && len(call.Name) > 1 {
		names = cutText(r, call.Name)
		for i := range names[1:] {
			if s.name == "grown" {
				names[i+1] = names[i] + names[i+1]
			}
		}
		arguments = append(slices.Repeat([]string{""}, len(names)-1), arguments...)
	}
	switch s.again {
	case "whole", "arguments":
		arguments = append(arguments, call.Arguments)
	case "empty":
		arguments = append(arguments, "")
	}
	for i, text := range arguments {
		name := ""
		switch {
		case s.name == "each", s.again == "whole" && i == len(arguments)-1:
			name = call.Name
		case s.name == "last":
			if i == len(arguments)-1 {
				name = call.Name
			}
		case i < len(names):
			name = names[i]
		}
		pieces = append(pieces, s.piece(n, i, name, text))
	}
	return pieces
}

func cutText(r *rand.Rand, text string) (parts []string) {
	for len(text) > 1 && r.IntN(3) > 0 {
		cut := 1 + r.IntN(len(text)-1)
		parts, text = append(parts, text[:cut]), text[cut:]
	}
	return append(parts, text)
}

// piece returns the ith piece of the nth call.
func (s style) piece(n, i int, name, arguments string) string {
	function := map[string]any{"arguments": arguments}
	if name != "" {
		function["name"] = name
	}
	piece := map[string]any{"function": function}
	switch id := fmt.Sprintf("id%d", n); s.id {
	case "each":
		piece["id"] = id
	case "fresh":
		piece["id"] = fmt.Sprintf("%s-%d", id, i)
	case "same":
		piece["id"] = "call"
	case "first":
		if i == 0 {
			piece["id"] = id
		}
	}
	switch {
	case s.index == "own", s.index == "first" && i == 0:
		piece["index"] = n
	case s.index == "zero":
		piece["index"] = 0
	}
	data, _ := json.Marshal(piece) //nolint:errchkjson // strings and numbers
	return string(data)
}

// stream returns the events of an answer with calls.
func (s style) stream(r *rand.Rand, calls []inference.Call) (events []string) {
	pieces := make([][]string, len(calls))
	for n, call := range calls {
		pieces[n] = s.cutInto(r, call, n)
	}
	for {
		left := []int{}
		for n := range pieces {
			if len(pieces[n]) > 0 {
				left = append(left, n)
			}
		}
		if len(left) == 0 {
			return append(events, `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`)
		}
		n := left[0]
		if s.interleave {
			n = one(r, left...)
		}
		events = append(events, `{"choices":[{"delta":{"tool_calls":[`+pieces[n][0]+`]}}]}`)
		pieces[n] = pieces[n][1:]
	}
}

// readEvents returns the answer that is read from a stream.
func readEvents(t *testing.T, events []string) inference.Response {
	t.Helper()
	req := inference.Request{Model: "m", Messages: []inference.Message{{Role: inference.RoleUser, Text: "x"}}}
	for _, name := range oddTools {
		req.Tools = append(req.Tools, inference.ToolDefinition{Name: name})
	}
	w := &wire{contentType: "text/event-stream", answer: []byte("data: " + strings.Join(events, "\n\ndata: ") + "\n\n")}
	res, err := wired(t, w, openai.Profile{}).Generate(t.Context(), req, nil)
	if err != nil {
		t.Fatalf("%v from\n%s", err, strings.Join(events, "\n"))
	}
	return res
}

// sumOf returns the calls as text, sorted.
func sumOf(calls []inference.Call) string {
	var all []string
	for _, call := range calls {
		all = append(all, call.Name+" "+call.Arguments)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// within reports whether some calls are all among others.
func within(some, others []inference.Call) bool {
	others = slices.Clone(others)
	for _, call := range some {
		i := slices.IndexFunc(others, func(c inference.Call) bool {
			return c.Name == call.Name && c.Arguments == call.Arguments
		})
		if i < 0 {
			return false
		}
		others = slices.Delete(others, i, i+1)
	}
	return true
}

// joined reports whether the names of two calls make up a name, or the beginning of one.
func joined(calls []inference.Call) bool {
	return slices.ContainsFunc(calls, func(a inference.Call) bool {
		return slices.ContainsFunc(calls, func(b inference.Call) bool {
			return slices.ContainsFunc(oddTools, func(name string) bool {
				return strings.HasPrefix(name, a.Name+b.Name)
			})
		})
	})
}

// ofTwoNames reports whether the name of a call, cut in two, may be the names of two tools.
func ofTwoNames(call inference.Call) bool { return call.Name == "paypal" }

// distinct reports whether calls are of different tools, and all have arguments.
func distinct(calls []inference.Call) bool {
	names := map[string]bool{}
	for _, call := range calls {
		names[call.Name] = names[call.Name] || call.Arguments != ""
	}
	return len(names) == len(calls) && !slices.Contains(slices.Collect(maps.Values(names)), false)
}

// grown reports whether the name of a call begins with that of an earlier one.
func grown(calls []inference.Call) bool {
	for i, call := range calls {
		if slices.ContainsFunc(calls[:i], func(c inference.Call) bool {
			return c.Name != call.Name && strings.HasPrefix(call.Name, c.Name)
		}) {
			return true
		}
	}
	return false
}

// clear reports whether the pieces of calls can be put together in one way only, so that the answer must not be marked.
func (s style) clear(calls []inference.Call) bool {
	known := s.id != "none" && s.id != "fresh" // a later piece may have the id of its call
	plain := s.again == "none" && !s.emptyFirst
	switch {
	case s.name == "parts":
		return s.index == "own" && known && !s.interleave && !joined(calls) && !slices.ContainsFunc(calls, ofTwoNames)
	case joined(calls), s.again == "whole" && !known, s.name == "each" && !known && !plain:
		return false
	case s.index == "own", s.index == "first" && s.id == "each":
		return true
	case !distinct(calls), s.id == "same" && len(calls) > 1, s.id == "none" && grown(calls):
		return false
	case s.name == "each":
		return s.id != "fresh" && plain
	}
	return s.again != "whole" || s.id != "first"
}

// damaged reports whether the turn runs no call of an answer that has an effect.
func damaged(res inference.Response) bool {
	return res.Doubt != "" || slices.ContainsFunc(res.Calls, func(c inference.Call) bool {
		return c.Arguments != "" && !json.Valid([]byte(c.Arguments))
	})
}

// TestCallsInAnyPiecesAreTheSameOrInDoubt cuts calls into pieces in every style. What is read equals the calls, or it
// is marked: no other call may be made of the pieces. If its pieces fit together in one way only, it is not marked.
func TestCallsInAnyPiecesAreTheSameOrInDoubt(t *testing.T) {
	whole, marked, clear := 0, 0, 0
	for seed := range uint64(testrun.UnderRace(4000, testrun.Count(4000, 100_000))) {
		r := rand.New(rand.NewPCG(seed, 3))
		s, calls := randomStyle(r), randomCalls(r)
		events := s.stream(r, calls)
		if s.clear(calls) {
			clear++
		}
		res := readEvents(t, events)
		switch {
		case damaged(res):
			if marked++; s.clear(calls) {
				t.Fatalf("seed %d, %+v: in doubt (%s):\n%s\nfrom\n%s", seed, s, res.Doubt, sumOf(res.Calls),
					strings.Join(events, "\n"))
			}
		case s.index != "own" && (s.interleave || s.id == "same") && within(res.Calls, calls):
			whole++ // nothing tells the calls apart, and one that is equal or has no arguments looks like a piece
		case sumOf(res.Calls) != sumOf(calls):
			t.Fatalf("seed %d, %+v: got\n%s\nwant\n%s\nfrom\n%s", seed, s, sumOf(res.Calls), sumOf(calls),
				strings.Join(events, "\n"))
		default:
			whole++
		}
	}
	t.Logf("%d answers are whole, %d in doubt; %d are clear", whole, marked, clear)
	if whole < 2*marked || clear < whole/2 {
		t.Errorf("%d answers are whole, %d in doubt, %d are clear: the styles are not what servers do", whole,
			marked, clear)
	}
}

// TestNamesThatGrowMakeNoOtherCalls sends names that grow from piece to piece, which no server is known for.
func TestNamesThatGrowMakeNoOtherCalls(t *testing.T) {
	for seed := range uint64(testrun.UnderRace(2000, testrun.Count(2000, 50_000))) {
		r := rand.New(rand.NewPCG(seed, 4))
		s, calls := randomStyle(r), randomCalls(r)[:1]
		s.name, s.again = "grown", "none"
		events := s.stream(r, calls)
		if res := readEvents(t, events); !damaged(res) && sumOf(res.Calls) != sumOf(calls) {
			t.Fatalf("seed %d, %+v: got\n%s\nwant\n%s\nfrom\n%s", seed, s, sumOf(res.Calls), sumOf(calls),
				strings.Join(events, "\n"))
		}
	}
}

// TestCallsOfToolsWhoseNamesAreParts reads calls of tools whose names make up the name of another tool.
func TestCallsOfToolsWhoseNamesAreParts(t *testing.T) {
	call := func(key, name, arguments string) string {
		return `{"choices":[{"delta":{"tool_calls":[{` + key + `"function":{"name":"` + name + `","arguments":"` +
			arguments + `"}}]}}]}`
	}
	const end = `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`
	for name, c := range map[string]struct {
		events []string
		calls  string
	}{
		"nothing tells them apart": {[]string{call("", "pay", ""), call("", "pal", `{}`), end}, "pal {}\npay "},
		"with another between them": {[]string{call(`"index":0,`, "pay", ""), call(`"index":1,`, "clock", "{}"),
			call(`"index":2,`, "pal", "{}"), end}, "clock {}\npal {}\npay "},
		"the first with its arguments": {[]string{call(`"index":0,`, "pay", "{}"), call(`"index":1,`, "pal", "{}"),
			end}, "pal {}\npay {}"},
	} {
		t.Run(name, func(t *testing.T) {
			if res := readEvents(t, c.events); res.Doubt == "" || sumOf(res.Calls) != c.calls {
				t.Errorf("doubt %q about\n%s", res.Doubt, sumOf(res.Calls))
			}
		})
	}
}
