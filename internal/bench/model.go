package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"turnkeeper"
	"turnkeeper/tools"
)

// A model is an OpenAI-compatible server that answers the standard turn at once: two tool calls in
// each of the first two rounds, text in the third.
type model struct {
	address string
	server  *http.Server

	mu    sync.Mutex
	since outcome           // the last load
	last  map[string][]byte // the newest request of each conversation, by its first message
	bytes int               // of last
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

// run runs nothing: it returns what was seen of requests since it was last called.
func (m *model) run(context.Context, load) (o outcome, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, m.since = m.since, outcome{}
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
	m.since.FirstRequest = append(m.since.FirstRequest, at.Sub(time.Unix(0, sent)))
}

// maxLast is how many bytes of requests are kept, to compare later ones with them.
const maxLast = 64 << 20

// compare counts the bytes with which a request begins like the one before it in its conversation: its tools, and then
// its messages, as providers' caches do. It returns the usage that the model reports.
func (m *model) compare(conversation string, req request) (usage string) {
	body := []byte(req.tools + req.messages)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil || m.bytes > maxLast {
		m.last, m.bytes = map[string][]byte{}, 0
	}
	before := m.last[conversation]
	repeated := commonPrefix(before, body)
	m.since.Requested += int64(len(body))
	m.since.Repeated += int64(repeated)
	m.last[conversation] = body
	m.bytes += len(body) - len(before)
	const perToken = 4 // bytes
	return fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":20,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}`,
		len(body)/perToken, len(body)/perToken+20, repeated/perToken)
}

func commonPrefix(a, b []byte) int {
	const step = 4096
	n := 0
	for n+step <= min(len(a), len(b)) && bytes.Equal(a[n:n+step], b[n:n+step]) {
		n += step
	}
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// A request is read without decoding all of it, because the requests of long conversations are large and the model
// shares the machine with what is measured.
type request struct {
	model           string
	stream          bool
	tools, messages string // JSON
}

func readRequest(body io.Reader) (r request, err error) {
	text, err := io.ReadAll(body)
	if err == nil && !gjson.ValidBytes(text) {
		err = errors.New("the request is no JSON")
	}
	fields := gjson.GetManyBytes(text, "model", "stream", "tools", "messages")
	return request{fields[0].Str, fields[1].Bool(), fields[2].Raw, fields[3].Raw}, err
}

// round returns the round of the turn, and its message. conversation is the first message of the benchmark.
func (r request) round() (round int, message, conversation string) {
	const begin = `"` + sentAt // of a text: not of a notice of the worker
	first, last := strings.Index(r.messages, begin), strings.LastIndex(r.messages, begin)
	if first < 0 {
		return 1, "", ""
	}
	until := func(at int) string {
		text, _, _ := strings.Cut(r.messages[at+1:], `"`)
		return text
	}
	return 1 + strings.Count(r.messages[last:], `"role":"assistant"`), until(last), until(first)
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	req, err := readRequest(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	round, message, conversation := req.round()
	usage := m.compare(conversation, req)
	if round == 1 {
		m.firstRequest(message, at)
	}
	if req.model == "trivial" || message == "" { // a request for a summary has no message of the benchmark
		round = 3
	}
	if req.model == "streamed" {
		m.stream(w, r, round, usage)
		return
	}
	if req.stream {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(streamed(round, usage))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(whole(round, usage))
}

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

func streamed(round int, usage string) []byte {
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

func whole(round int, usage string) []byte {
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
