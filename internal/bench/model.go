package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/tools"
)

// A model is an OpenAI-compatible server that answers the standard turn at once: two tool calls in
// each of the first two rounds, text in the third.
type model struct {
	address string
	server  *http.Server

	mu    sync.Mutex
	until []time.Duration // from a message to its first request, since the last load
}

func startModel(ctx context.Context, _ setup) (part, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &model{address: "http://" + listener.Addr().String() + "/v1"}
	m.server = &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	go func() { _ = m.server.Serve(listener) }()
	return m, nil
}

func (m *model) url() string  { return m.address }
func (m *model) close() error { return m.server.Close() }

// run runs nothing: it returns the times of first requests since it was last called.
func (m *model) run(context.Context, load) (o outcome, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o.FirstRequest, m.until = m.until, nil
	return o, nil
}

// sentAt begins each message of Turnkeeper's sender. The time follows it.
const sentAt = "sent at "

// newMessage returns a message that says when it was sent.
func newMessage() string { return sentAt + strconv.FormatInt(time.Now().UnixNano(), 10) }

func (m *model) firstRequest(message string, at time.Time) {
	text, found := strings.CutPrefix(message, sentAt)
	sent, err := strconv.ParseInt(text, 10, 64)
	if !found || err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.until = append(m.until, at.Sub(time.Unix(0, sent)))
}

type request struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Messages []struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	} `json:"messages"`
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	var req request
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	round, message := 1, "" // after the turns of the past
	for _, msg := range req.Messages {
		switch text := fmt.Sprint(msg.Content); {
		case msg.Role == "assistant":
			round++
		case msg.Role == "user" && strings.HasPrefix(text, sentAt): // not a notice of the worker
			round, message = 1, text
		}
	}
	if round == 1 {
		m.firstRequest(message, at)
	}
	if req.Model == "trivial" || message == "" { // without a message of the benchmark, a summary is asked for
		round = 3
	}
	if req.Model == "streamed" {
		m.stream(w, r, round)
		return
	}
	if req.Stream {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(streamed(round))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(whole(round))
}

const usage = `"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120}`

// calls returns the tool calls of a round as JSON.
func calls(round int) string {
	var list []string
	for i := range 2 {
		list = append(list,
			fmt.Sprintf(
				`{"index":%d,"id":"call_%d_%d","type":"function","function":{"name":"noop","arguments":"{\"n\":%d}"}}`,
				i, round, i, round*10+i))
	}
	return "[" + strings.Join(list, ",") + "]"
}

func streamed(round int) []byte {
	var b bytes.Buffer
	chunk := func(delta, finish string) {
		fmt.Fprintf(&b,
			`data: {"id":"c","object":"chat.completion.chunk","model":"instant","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`+"\n\n", delta, finish)
	}
	if round <= 2 {
		chunk(`{"role":"assistant","content":null,"tool_calls":`+calls(round)+`}`, "null")
		chunk(`{}`, `"tool_calls"`)
	} else {
		chunk(`{"role":"assistant","content":"All four calls were made."}`, "null")
		chunk(`{}`, `"stop"`)
	}
	fmt.Fprintf(&b, `data: {"id":"c","object":"chat.completion.chunk","model":"instant","choices":[],%s}`+
		"\n\ndata: [DONE]\n\n", usage)
	return b.Bytes()
}

func whole(round int) []byte {
	message, finish := `{"role":"assistant","content":"All four calls were made."}`, "stop"
	if round <= 2 {
		message, finish = `{"role":"assistant","content":null,"tool_calls":`+calls(round)+`}`, "tool_calls"
	}
	return fmt.Appendf(nil,
		`{"id":"c","object":"chat.completion","model":"instant","choices":[{"index":0,"message":%s,"finish_reason":%q}],%s}`,
		message, finish, usage)
}

type noopArgs struct {
	N int `json:"n"`
}

var noopResult = strings.Repeat("0123456789", 20)

// noop is a tool that does nothing and returns 200 bytes.
func noop() tools.Tool {
	return tools.Func(tools.Spec{Name: "noop", Description: "Does nothing.", Effect: turnkeeper.EffectNone},
		func(context.Context, noopArgs) (string, error) { return noopResult, nil })
}
