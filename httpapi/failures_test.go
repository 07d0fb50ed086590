package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/asks"
	"turnkeeper/httpapi"
	"turnkeeper/internal/golden"
	"turnkeeper/storage/operate"
)

// complete are requests that succeed: one of each route and form.
func complete() (all []asked) {
	for _, path := range []string{
		"/v1/messages?agent=clerk", "/v1/messages/3", "/v1/transcript?agent=clerk&conversation=main", "/v1/outbox",
		"/v1/turns", "/v1/turns/3", "/v1/outputs/text", "/v1/outputs/bytes",
		"/v1/lanes", "/v1/workers", "/v1/agents", "/v1/agents/clerk", "/v1/model-health", "/v1/levels", "/v1/schedules",
		"/v1/scheduler", "/v1/webhooks", "/v1/webhooks/hook/deliveries",
		"/v1/asks", "/v1/asks/1", "/v1/responses/resp_3", "/v1/responses/resp_3/input_items",
		"/v1/conversations/conv_1", "/v1/models", "/v1/models/clerk", "/readyz",
		"/", "/turns", "/turns/3", "/inbox", "/inbox/3", "/replies", "/agents", "/agents/clerk", "/webhooks",
		"/webhooks/hook", "/lanes", "/schedules",
		"/conversation?agent=clerk&conversation=main", "/outputs/text", "/asks", "/asks/1", "/v1/doctor",
	} {
		all = append(all, asked{as: "ann", method: "GET", path: path})
	}
	for path, body := range map[string]string{
		"/v1/messages": `{"agent":"clerk","body":"x"}`, "/v1/messages/2/cancel": "", "/v1/messages/2/finish": "",
		"/v1/messages/retry": `{"state":"failed"}`,
		"/v1/turns/2/cancel": "", "/v1/turns/2/finish": "", "/v1/turns/6/retry": "",
		"/v1/levels/pin": `{"agent":"clerk","level":"low"}`, "/v1/levels/unpin": `{"agent":"clerk"}`,
		"/v1/schedules/clerk/daily/run": "", "/v1/scheduler/pause": `{"reason":"x"}`, "/v1/scheduler/resume": "",
		"/v1/responses": `{"model":"clerk","input":"x","background":true}`, "/v1/responses/resp_3/cancel": "",
		"/v1/conversations": `{}`,
		"/inbox":            form("agent", "clerk", "body", "x"), "/inbox/2/cancel": "", "/inbox/retry-failed": "",
		"/turns/2/cancel": "", "/turns/2/finish": "", "/turns/6/retry": "",
		"/agents/clerk/level/pin": form("level", "low"), "/agents/clerk/level/unpin": "",
		"/scheduler/pause": form("reason", "x"), "/scheduler/resume": "",
		"/schedules/clerk/daily/pause": "", "/schedules/clerk/daily/resume": "", "/schedules/clerk/daily/run": "",
	} {
		all = append(all, asked{as: "all", method: "POST", path: path, body: body})
	}
	all = append(all,
		asked{as: "all", method: "POST", path: "/v1/responses",
			body: `{"model":"clerk","input":"x","conversation":"old"}`, headers: []string{"Idempotency-Key", "k"}},
		asked{as: "all", method: "POST", path: "/v1/responses",
			body: `{"model":"clerk","input":"x","previous_response_id":"resp_3"}`},
		asked{as: "all", method: "POST", path: "/v1/responses",
			body: `{"model":"clerk","background":true,"input":[{"type":"item_reference","id":"msg_3"},{"role":"user","content":"x"}]}`},
		asked{as: "ann", method: "POST", path: "/v1/asks/1/answer", body: `{"decision":"denied","hash":"hash"}`},
		asked{as: "ann", method: "POST", path: "/asks/1/answer", body: form("decision", "denied", "hash", "hash")},
		asked{method: "POST", path: "/sign-in", body: form("token", "all")}, asked{as: "all", method: "POST",
			path: "/sign-out"},
	)
	slices.SortFunc(all, func(a, b asked) int {
		return strings.Compare(a.method+a.path+a.body, b.method+b.path+b.body)
	})
	return all
}

// A fault is what happens to a call of the store.
type fault struct {
	name string
	do   func(ctx context.Context) error
}

func fails(name string, err error) fault {
	return fault{name, func(context.Context) error { return err }}
}

// The faults of every call, and those of the last call of a request that changes something.
var (
	faults = []fault{
		fails("away", fmt.Errorf("dial tcp 10.1.2.3:5432: %w", errAway)), fails("missing", turnkeeper.ErrNotFound),
		{"hangs", func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Hour):
				return errAway
			}
		}},
	}
	refusals = []fault{
		fails("empty", turnkeeper.ErrEmptyMessage), fails("invalid", turnkeeper.ErrInvalidMessage),
		fails("unknown", turnkeeper.ErrUnknownAgent),
		fails("retired", turnkeeper.ErrAgentRetired), fails("key", turnkeeper.ErrKeyConflict),
		fails("state", turnkeeper.ErrWrongState), fails("closed", asks.ErrClosed),
		fails("bad answer", asks.ErrInvalid), fails("many", operate.ErrTooManyConversations),
		fails("held up", operate.ErrHeldUp), fails("a tick", operate.ErrTickGoesOn),
		fails("effects", operate.ErrMayRepeatEffects),
	}
)

// TestEveryCallOfTheStoreFails lets each call of each route fail in each way, and records what the client is told,
// when, and whether the route calls the store again after it.
func TestEveryCallOfTheStoreFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecording(t, func(c *httpapi.Config) {
			c.Observe, c.FourEyes, c.ResponseWait = nil, true, 2500*time.Millisecond
		})
		for _, a := range complete() {
			<-time.After(time.Minute) // after the newest report of doctor
			r.store.before = nil
			w := r.do(t.Context(), a)
			calls := r.store.take()
			fmt.Fprintf(&r.text, "=== %s %s %.80s\n%d after %s\n", a.method, a.path, a.body, w.Code,
				time.Since(w.began))
			var answers []string
			by := map[string][]string{} // the calls with these answers
			for i, call := range calls {
				name, _, _ := strings.Cut(call, "(")
				ways := faults
				if i == len(calls)-1 && a.method == "POST" {
					ways = slices.Concat(faults, refusals)
				}
				lines := ""
				for _, way := range ways {
					<-time.After(time.Minute)
					lines += "   " + way.name + ": " + r.fail(a, i, way, bodyOf(w)) + "\n"
				}
				if len(by[lines]) == 0 {
					answers = append(answers, lines)
				}
				by[lines] = append(by[lines], fmt.Sprintf("%d. %s", i+1, name))
			}
			for _, lines := range answers {
				r.text.WriteString(strings.Join(by[lines], ", ") + "\n" + lines)
			}
		}
		golden.File(t, "testdata/failures.txt", r.text.String())
	})
}

// fail sends a request whose call number n fails, and returns a line about the answer. report is the answer without a
// failure.
func (r *recording) fail(a asked, n int, way fault, report string) string {
	r.store.before = func(ctx context.Context, i int, _ string) error {
		if i == n {
			return way.do(ctx)
		}
		return nil
	}
	w := r.doAlone(r.t.Context(), a)
	line := fmt.Sprint(w.Code)
	if took := time.Since(w.began); took > 0 {
		line += " after " + took.String()
	}
	for _, name := range []string{"Retry-After", "X-Should-Retry", "Location"} {
		if text := w.Header().Get(name); text != "" {
			line += " " + name + ": " + text
		}
	}
	switch {
	case w.Code >= 400:
		line += " " + saidBy(w)
	case a.path == "/v1/doctor": // its report says what failed
		for found := range strings.SplitSeq(changed(report, bodyOf(w)), "\n") {
			if strings.HasPrefix(found, "+") && strings.Contains(found, "fail") && !strings.Contains(found,
				"checked_at") {
				line += fmt.Sprintf("\n        %.200s", found)
			}
		}
	}
	for _, entry := range r.logs.TakeAll() {
		line += fmt.Sprintf("; logged: %s %v", entry.Message, entry.ContextMap())
	}
	if later := len(r.store.take()) - n - 1; later > 0 {
		line += fmt.Sprintf("; %d more calls", later)
	}
	return line
}

var tags = regexp.MustCompile(`<[^>]*>`)

// saidBy returns what an error says.
func saidBy(w *timedWriter) string {
	var problem struct {
		Detail string
		Error  struct{ Message, Code string }
	}
	if json.Unmarshal(w.Body.Bytes(), &problem) == nil {
		return strings.TrimSpace(problem.Detail + problem.Error.Message + " " + problem.Error.Code)
	}
	_, text, _ := strings.Cut(w.Body.String(), "<main")
	text, _, _ = strings.Cut(text, "</main>")
	return strings.Join(strings.Fields(tags.ReplaceAllString("<"+text, " ")), " ")
}
