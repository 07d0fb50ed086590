package completions

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"turnkeeper/inference"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/inference/openai"
	"turnkeeper/internal/testrun"
)

// A comparison reads each answer again.
type comparison struct {
	t              *testing.T
	streams, plain atomic.Int64
}

// read implements openai.ReadAnswer. It reads the answer, and what it got of it once more with each decoder, as the
// first answer of a model: other answers that come at the same time change what is known of this one.
func (c *comparison) read(ctx context.Context, res *http.Response, body io.Reader, req inference.Request,
	habit *inference.Habit, onDelta func(inference.Delta)) (inference.Response, *inference.Error) {
	read := &tee{from: body}
	response, failure := Read(ctx, res, read, req, habit, onDelta)
	ctx = context.WithoutCancel(ctx)
	got := readWith(ctx, res, read.again(), req, &inference.Habit{}, true)
	want := readWith(ctx, res, read.again(), req, &inference.Habit{}, false)
	if diff := difference(want, got); diff != "" {
		c.t.Errorf("the library reads another answer: %s", diff)
	}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		c.streams.Add(1)
		if !got.library {
			c.plain.Add(1)
		}
	}
	return response, failure
}

// TestTheSuiteIsReadEqually compares the decoders on all answers of the suite for providers.
func TestTheSuiteIsReadEqually(t *testing.T) {
	c := &comparison{t: t}
	inferencetest.RunProviderSuite(t, inferencetest.ChatWire(), func(t *testing.T,
		target inferencetest.Target) inference.Provider {
		cfg := openai.Config{
			Name: target.Name, BaseURL: target.BaseURL, APIKey: openai.Secret(target.APIKey), IdleTimeout: target.Idle,
			Headers: map[string]openai.Secret{}, Read: c.read, Profile: openai.Profile{NoStream: target.NoStream},
		}
		if target.IDs9 {
			cfg.Profile.IDs = openai.IDNine
		}
		for name, value := range target.Header {
			cfg.Headers[name] = openai.Secret(value)
		}
		client, err := openai.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return client
	})
	streams, plain := c.streams.Load(), c.plain.Load()
	t.Logf("of %d streams, the library decoded nothing of %d", streams, plain)
	if streams < 100 || plain < streams/2 {
		t.Errorf("of %d streams, only %d are plain", streams, plain)
	}
}

// one returns one of a few values.
func one[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// A node is a JSON value that is changed member by member.
type node struct {
	open  byte     // { or [; 0: text is the value
	text  string   // of another value
	names []string // of the members, as JSON
	items []*node
}

// parse returns the value at the beginning of valid JSON, and the rest.
func parse(text string) (*node, string) {
	if text[0] != '{' && text[0] != '[' {
		end := strings.IndexAny(text, ",]}")
		if text[0] == '"' {
			for end = 1; text[end] != '"'; end++ {
				if text[end] == '\\' {
					end++
				}
			}
			end++
		}
		return &node{text: text[:end]}, text[end:]
	}
	n := &node{open: text[0]}
	for text = text[1:]; text[0] != '}' && text[0] != ']'; text = strings.TrimPrefix(text, ",") {
		var name, item *node
		if n.open == '{' {
			name, text = parse(text)
			n.names, text = append(n.names, name.text), text[1:]
		}
		item, text = parse(text)
		n.items = append(n.items, item)
	}
	return n, text[1:]
}

// write appends the value. Some white space stands between its tokens.
func (n *node) write(r *rand.Rand, to *strings.Builder, spaced bool) {
	space := func() {
		if spaced && r.IntN(4) == 0 {
			to.WriteString(one(r, " ", "\t", "\n", "  "))
		}
	}
	space()
	defer space()
	if n.open == 0 {
		to.WriteString(n.text)
		return
	}
	to.WriteByte(n.open)
	for i, item := range n.items {
		if i > 0 {
			to.WriteByte(',')
		}
		if n.open == '{' {
			space()
			to.WriteString(n.names[i])
			space()
			to.WriteByte(':')
		}
		item.write(r, to, spaced)
	}
	to.WriteByte(n.open + 2)
}

// all returns the value and all in it.
func (n *node) all() []*node {
	nodes := []*node{n}
	for _, item := range n.items {
		nodes = append(nodes, item.all()...)
	}
	return nodes
}

// oddNames and oddValues are what the members of mutants are called and worth.
var (
	oddNames = []string{`"strange"`, `"error"`, `"message"`, `"Content"`, `"c\u006fntent"`, `"content"`, `"role"`,
		`"index"`, `"id"`, `"function"`, `"arguments"`, `"input"`, `"extra_content"`, `"finish_reason"`,
		`"native_finish_reason"`, `"usage"`, `"cost"`, `"reasoning"`, `"reasoning_details"`, `"refusal"`, `""`}
	oddValues = []string{`null`, `true`, `false`, `0`, `1`, `-1`, `-0`, `01`, `1.5`, `1e3`, `1E-3`, `9007199254740992`,
		`99999999999999999999`, `""`, `"x"`, `"0"`, `"{}"`, `"{\"a\":1}"`, `"\n\t\"\\\/\b\f\r"`, `"\ud83c"`,
		`"\udf0d"`, `"\ud83c\udf0d"`, `"\u0000"`, `"\u00e9"`, `"é"`, "\"\xff\"", "\"\x01\"", `"\x"`, `"stop"`,
		`"length"`, `"error"`, `"MAX_TOKENS"`, `"clock"`, `[]`, `{}`, `[{}]`, `[null]`, `[1]`, `{"a":1}`,
		`{"content":"y"}`, `[{"text":"part"}]`, `{"name":"clock","arguments":"{}"}`, `nul`, `{`, `<think>`,
		`"<think>"`, `"</think>"`}
)

// mutate changes a value at random.
func (n *node) mutate(r *rand.Rand) {
	all := n.all()
	at := all[r.IntN(len(all))]
	if at.open == 0 || len(at.items) == 0 || r.IntN(6) == 0 {
		*at = node{text: one(r, oddValues...)}
		return
	}
	i := r.IntN(len(at.items))
	named := at.open == '{'
	switch r.IntN(6) {
	case 0: // drop
		at.items = slices.Delete(at.items, i, i+1)
		if named {
			at.names = slices.Delete(at.names, i, i+1)
		}
	case 1: // repeat
		at.items = append(at.items, at.items[i])
		if named {
			at.names = append(at.names, at.names[i])
		}
	case 2: // add
		at.items = append(at.items, &node{text: one(r, oddValues...)})
		if named {
			at.names = append(at.names, one(r, oddNames...))
		}
	case 3: // order
		j := r.IntN(len(at.items))
		at.items[i], at.items[j] = at.items[j], at.items[i]
		if named {
			at.names[i], at.names[j] = at.names[j], at.names[i]
		}
	case 4: // rename
		if named {
			at.names[i] = one(r, strings.ToUpper(at.names[i]), one(r, oddNames...))
		}
	case 5: // change
		at.items[i] = &node{text: one(r, oddValues...)}
	}
}

// mutant returns a chunk that differs in some places from an ordinary one.
func mutant(r *rand.Rand, from string) string {
	n, _ := parse(from)
	for range r.IntN(3) {
		n.mutate(r)
	}
	var text strings.Builder
	n.write(r, &text, r.IntN(3) == 0)
	out := text.String()
	if r.IntN(10) == 0 {
		from := r.IntN(len(out))
		to := min(len(out), from+r.IntN(3))
		out = out[:from] + one(r, "", "\\", `"`, ",", "}", "\xff", " ", "0", "u", "\x00") + out[to:]
	}
	return out
}

// TestMutantsAreReadEqually compares the decoders on chunks that differ a little from ordinary ones.
func TestMutantsAreReadEqually(t *testing.T) {
	var chunks []string
	for _, stream := range ordinary {
		for _, c := range stream {
			if c[0] == '{' {
				chunks = append(chunks, c)
			}
		}
	}
	slices.Sort(chunks)
	plainly, count := 0, testrun.UnderRace(2000, testrun.Count(5000, 100_000))
	for seed := range uint64(count) {
		r := rand.New(rand.NewPCG(seed, 5))
		var stream []string
		for range 1 + r.IntN(4) {
			stream = append(stream, mutant(r, one(r, chunks...)))
		}
		if !sameStream(t, append(stream, "[DONE]")...) {
			plainly++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d of %d streams are plain", plainly, count)
	if plainly < count/20 {
		t.Errorf("only %d of %d streams are plain", plainly, count)
	}
}
