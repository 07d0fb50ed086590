package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// A responsesEnv is an Env for clients of the Responses API: a worker that is killed while it answers the
// message "long", and a process that only serves the API.
type responsesEnv struct {
	*env.Env
	runner, front *env.Process
	cutter        *cutter
	key           string
	long          string
	seen          chan struct{} // closed when the client has seen the first half of "slow"
}

// leastDrops is the minimum number of cuts of a stream of "long".
const leastDrops = 20

func newResponsesEnv(t *testing.T) *responsesEnv {
	t.Helper()
	t.Parallel()
	s := &responsesEnv{Env: env.New(t), long: strings.Repeat("all of it is said, word by word; grüße. ", 500),
		seen: make(chan struct{})}
	s.WriteAgent("clerk", "lane: conversation")
	lost := make(chan struct{}, 1)
	lost <- struct{}{}
	s.Model.Then(func(r inferencetest.Recorded) inferencetest.Reply {
		switch said := env.NewestMessage(r); said {
		case "wait":
			return inferencetest.Hang()
		case "slow":
			return func(x *inferencetest.Exchange) {
				inferencetest.OpenSSE(env.Chunk("The first half, ", ""))(x)
				if x.Wait(s.seen) {
					x.Send("data: " + env.Chunk("the second half.", "stop") + "\n\ndata: [DONE]\n\n")
				}
			}
		case "long":
			select {
			case <-lost:
				return env.HangHalfway(s.long)
			default:
				return inferencetest.Text(s.long)
			}
		default:
			users := 0
			for _, m := range r.Chat().Messages {
				if m.Role == "user" && !env.IsNotice(m) {
					users++
				}
			}
			if _, own, quoted := strings.Cut(said, "\n\n# Message\n\n"); quoted {
				said = own
			}
			return inferencetest.Text(fmt.Sprintf("%d: %s", users, said))
		}
	})
	s.runner, s.front = s.StartWorker(), s.StartWorker("--roles", "api")
	var answers atomic.Int64
	s.cutter = newCutter(t, func() int {
		if answers.Add(1) <= leastDrops {
			return rand.IntN(5000) // too few for all events, whatever the random number
		}
		return rand.IntN(4 * len(s.long)) // the last events have all of the text
	}, nil)
	s.cutter.to(s.runner.APIURL(), s.front.APIURL())
	s.key = env.Turnctl[struct{ Token string }](s.Env, "tokens", "create", "shop", "--scopes", "send", "--agents",
		"clerk").Token
	return s
}

// loseTheWorker kills the worker that streams "long". Another one takes the turn over.
func (s *responsesEnv) loseTheWorker() {
	s.T.Helper()
	s.Await("the turn streams", `select exists (select from turn_events e join turns t on t.id = e.turn_id
		join messages m on m.id = t.message_id where m.body = 'long' and e.type = 'block_delta')`)
	third := s.StartWorker()
	s.cutter.to(s.front.APIURL(), third.APIURL())
	s.Kill(s.runner)
}

// The official client in JavaScript.
func TestTheOpenAIClientOfNPM(t *testing.T) {
	testrun.OnlyFull(t)
	s := newResponsesEnv(t)
	ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
	defer cancel()
	cmd := env.NodeProgram(ctx, t, []string{"OPENAI_API_KEY=" + s.key}, "openai.mjs", s.front.APIURL(), s.cutter.URL)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	s.Poll("the client has come to the long one, or has failed", func() bool {
		return len(ended) > 0 || env.Query[bool](s.Env, "select exists (select from messages where body = 'long')")
	})
	if len(ended) > 0 {
		t.Fatalf("the client ended with %v\n%s", <-ended, errs.String())
	}
	s.loseTheWorker()
	if err := <-ended; err != nil {
		t.Fatalf("the client ended with %v\n%s", err, errs.String())
	}
	var got struct {
		ID            string
		Drops, Events int
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got.Drops < leastDrops {
		t.Errorf("the client said %s, %v", out.String(), err)
	}
	t.Logf("%d events over %d drops", got.Events, got.Drops)
	s.hasAnsweredLong(got.ID)
}

// The Vercel AI SDK with the requests of a chat page.
func TestTheAISDKOfNPM(t *testing.T) {
	testrun.OnlyFull(t)
	s := newResponsesEnv(t)
	ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
	defer cancel()
	cmd := env.NodeProgram(ctx, t, []string{"OPENAI_API_KEY=" + s.key}, "ai.mjs", s.front.APIURL())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the client ended with %v\n%s", err, out)
	}
	first := s.Model.Requests()[0].Chat().Messages
	if body := first[len(first)-1].Text(); !strings.HasPrefix(body,
		"# Instructions of the sender\n\n> Be kind.\n\n# Message\n\n") {
		t.Errorf("the model got the message %q", body)
	}
	if !strings.Contains(string(s.Model.Requests()[0].Body), `"max_completion_tokens":500`) &&
		!strings.Contains(string(s.Model.Requests()[0].Body), `"max_tokens":500`) {
		t.Errorf("the limit of the answer is not in the request %s", s.Model.Requests()[0].Body)
	}
}

func (s *responsesEnv) hasAnsweredLong(id string) {
	s.T.Helper()
	turn := s.TurnOf(env.Query[int64](s.Env, "select id from messages where body = 'long'"))
	s.WantReply(turn, s.long)
	if want := fmt.Sprintf("resp_%d", turn.Message.ID); id != want || turn.Losses != 1 {
		s.T.Errorf("the response is %s, want %s; its turn lost %d workers", id, want, turn.Losses)
	}
}

// The official client in Go.
func TestTheOpenAIClientOfGo(t *testing.T) {
	s := newResponsesEnv(t)
	ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
	defer cancel()
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	client := openai.NewClient(option.WithBaseURL(s.front.APIURL()+"/v1"), option.WithAPIKey(s.key),
		option.WithHTTPClient(web))
	input := func(text string) responses.ResponseNewParams {
		return responses.ResponseNewParams{
			Model: "clerk", Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(text)},
		}
	}
	first, err := client.Responses.New(ctx, input("Hello"))
	if err != nil || first.Status != "completed" || first.OutputText() != "1: Hello" {
		t.Fatalf("the response is %+v, %v", first, err)
	}
	next := input("And now?")
	next.PreviousResponseID, next.Background = param.NewOpt(first.ID), param.NewOpt(true)
	second, err := client.Responses.New(ctx, next)
	for err == nil && (second.Status == "queued" || second.Status == "in_progress") {
		<-env.After(20 * time.Millisecond)
		second, err = client.Responses.Get(ctx, second.ID, responses.ResponseGetParams{})
	}
	if err != nil || second.OutputText() != "2: And now?" {
		t.Fatalf("the next one is %+v, %v", second, err)
	}

	t.Run("cancel", func(t *testing.T) {
		waiting := input("wait")
		waiting.Background = param.NewOpt(true)
		r, err := client.Responses.New(ctx, waiting)
		if err == nil {
			r, err = client.Responses.Cancel(ctx, r.ID)
		}
		if err != nil || r.Status != "cancelled" {
			t.Errorf("it is %+v, %v", r, err)
		}
	})
	t.Run("drafts", func(t *testing.T) {
		const slow = "The first half, the second half."
		stream, text, finals := client.Responses.NewStreaming(ctx, input("slow"), option.WithHeader("Turnkeeper-Drafts",
			"true")), "", 0
		for stream.Next() {
			switch e := stream.Current(); e.Type {
			case "response.output_text.delta":
				if text == "" {
					close(s.seen) // the model goes on once the client has seen some of it
				}
				text += e.Delta
			case "response.completed":
				finals++
				if e.Response.OutputText() != slow {
					t.Errorf("the response is %q", e.Response.OutputText())
				}
			}
		}
		if err := stream.Err(); err != nil || text != slow || finals != 1 {
			t.Errorf("%q was streamed, with %d ends, %v", text, finals, err)
		}
	})
	t.Run("repeat", func(t *testing.T) {
		key := option.WithHeader("Idempotency-Key", "k")
		one, err := client.Responses.New(ctx, input("Once"), key)
		two, again := client.Responses.New(ctx, input("Once"), key)
		if err != nil || again != nil || one.ID != two.ID {
			t.Errorf("%v, %v", err, again)
		}
		_, err = client.Responses.New(ctx, input("Twice"), key)
		wantError(t, err, http.StatusConflict, "idempotency_key_in_use", "")
	})
	t.Run("errors", func(t *testing.T) {
		request := input("x")
		request.MaxToolCalls = param.NewOpt[int64](1)
		_, err := client.Responses.New(ctx, request)
		wantError(t, err, http.StatusBadRequest, "unsupported_parameter", "max_tool_calls")
		_, err = client.Responses.Get(ctx, "resp_999", responses.ResponseGetParams{})
		wantError(t, err, http.StatusNotFound, "response_not_found", "")
		_, err = client.Responses.New(ctx, input("x"), option.WithAPIKey("tk_wrong"))
		wantError(t, err, http.StatusUnauthorized, "invalid_api_key", "")
	})
	t.Run("models", func(t *testing.T) {
		page, err := client.Models.List(ctx)
		if err != nil || len(page.Data) != 1 || page.Data[0].ID != "clerk" {
			t.Errorf("they are %+v, %v", page, err)
		}
	})

	dropped := openai.NewClient(option.WithBaseURL(s.cutter.URL+"/v1"), option.WithAPIKey(s.key),
		option.WithHTTPClient(web))
	f := &follower{t: t, client: &dropped, params: input("long")}
	done := make(chan struct{})
	go func() { defer close(done); f.follow(ctx) }()
	s.loseTheWorker()
	<-done
	if f.text.String() != s.long || f.drops < leastDrops {
		t.Errorf("it ended with %d bytes of %d, after %d drops", f.text.Len(), len(s.long), f.drops)
	}
	t.Logf("%d events over %d drops", f.last+1, f.drops)
	s.hasAnsweredLong(f.id)
}

func wantError(t *testing.T, err error, status int, code, parameter string) {
	t.Helper()
	apiErr, ok := errors.AsType[*openai.Error](err)
	if !ok || apiErr.StatusCode != status || apiErr.Code != code || apiErr.Param != parameter || apiErr.Message == "" {
		t.Errorf("the error is %v, want %d, %s", err, status, code)
	}
}

// A follower streams one response across cut connections.
type follower struct {
	t      *testing.T
	client *openai.Client
	params responses.ResponseNewParams

	id    string
	last  int64
	text  strings.Builder
	drops int
	over  bool
}

func (f *follower) follow(ctx context.Context) {
	f.last = -1
	for !f.over && ctx.Err() == nil && !f.t.Failed() {
		stream := f.open(ctx)
		for stream.Next() {
			f.take(stream.Current())
		}
		if apiErr, ok := errors.AsType[*openai.Error](stream.Err()); ok {
			f.t.Errorf("a stream got %v", apiErr)
		}
		if !f.over {
			f.drops++
		}
	}
}

func (f *follower) open(ctx context.Context) *ssestream.Stream[responses.ResponseStreamEventUnion] {
	if f.id == "" {
		f.last = -1 // the repeat starts from the beginning
		return f.client.Responses.NewStreaming(ctx, f.params, option.WithHeader("Idempotency-Key", "long"))
	}
	return f.client.Responses.GetStreaming(ctx, f.id, responses.ResponseGetParams{StartingAfter: param.NewOpt(f.last)})
}

func (f *follower) take(e responses.ResponseStreamEventUnion) {
	if e.SequenceNumber != f.last+1 {
		f.t.Errorf("event %d came after %d", e.SequenceNumber, f.last)
	}
	f.last = e.SequenceNumber
	switch e.Type {
	case "response.created":
		f.id = e.Response.ID
	case "response.output_text.delta":
		f.text.WriteString(e.Delta)
	case "response.completed":
		f.over = true
	}
}
