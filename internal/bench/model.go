package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"turnkeeper"
	"turnkeeper/tools"
)

// A model is an OpenAI-compatible server that answers the standard turn at once: two tool calls in
// each of the first two rounds, text in the third.
type model struct {
	url    string
	server *http.Server

	mu    sync.Mutex
	sent  map[string]time.Time // by message: when it was sent, until its first request
	until []time.Duration      // from a message to its first request, in order
}

func startModel() (*model, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &model{url: "http://" + listener.Addr().String() + "/v1", sent: map[string]time.Time{}}
	m.server = &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	go func() { _ = m.server.Serve(listener) }()
	return m, nil
}

func (m *model) close() { _ = m.server.Close() }

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
	// Each turn has its own conversation, so its message is the first.
	round, message := 1, ""
	for _, msg := range req.Messages {
		switch {
		case msg.Role == "assistant":
			round++
		case msg.Role == "user" && message == "":
			message = fmt.Sprint(msg.Content)
		}
	}
	if round == 1 {
		m.seen(message, at)
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

// expect returns a new message and records the time.
func (m *model) expect() (message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	message = fmt.Sprintf("idle turn %d", len(m.sent)+len(m.until))
	m.sent[message] = time.Now()
	return message
}

func (m *model) seen(message string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sent, expected := m.sent[message]; expected {
		m.until = append(m.until, at.Sub(sent))
		delete(m.sent, message)
	}
}

func (m *model) untilFirstRequest() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.until)
}

const usage = `"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120}`

// calls returns the tool calls of a round as JSON.
func calls(round int) string {
	var list []string
	for i := range 2 {
		list = append(list, fmt.Sprintf(`{"index":%d,"id":"call_%d_%d","type":"function","function":{"name":"noop","arguments":"{\"n\":%d}"}}`,
			i, round, i, round*10+i))
	}
	return "[" + strings.Join(list, ",") + "]"
}

func streamed(round int) []byte {
	var b bytes.Buffer
	chunk := func(delta, finish string) {
		fmt.Fprintf(&b, `data: {"id":"c","object":"chat.completion.chunk","model":"instant","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`+"\n\n", delta, finish)
	}
	if round <= 2 {
		chunk(`{"role":"assistant","content":null,"tool_calls":`+calls(round)+`}`, "null")
		chunk(`{}`, `"tool_calls"`)
	} else {
		chunk(`{"role":"assistant","content":"All four calls were made."}`, "null")
		chunk(`{}`, `"stop"`)
	}
	fmt.Fprintf(&b, `data: {"id":"c","object":"chat.completion.chunk","model":"instant","choices":[],%s}`+"\n\ndata: [DONE]\n\n", usage)
	return b.Bytes()
}

func whole(round int) []byte {
	message, finish := `{"role":"assistant","content":"All four calls were made."}`, "stop"
	if round <= 2 {
		message, finish = `{"role":"assistant","content":null,"tool_calls":`+calls(round)+`}`, "tool_calls"
	}
	return fmt.Appendf(nil, `{"id":"c","object":"chat.completion","model":"instant","choices":[{"index":0,"message":%s,"finish_reason":%q}],%s}`,
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
