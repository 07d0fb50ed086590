package inferencetest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"turnkeeper/inference/inferencetest"
)

// requestForms holds, by wire, the path of requests, one with a message, what is added to it by an answer and a second
// message, and where the answer stands in a reply.
var requestForms = map[string]struct{ path, body, more, answer string }{
	"chat": {"/chat/completions", `{"model":"m","tools":[{"name":"look"}],"messages":[
		{"role":"system","content":"You test."},{"role":"user","content":"one"}]}`,
		`,%s,{"role":"user","content":"two"}]}`, "message"},
	"responses": {"/responses", `{"model":"m","tools":[{"name":"look"}],"instructions":"You test.","input":[
		{"role":"user","content":"one"}]}`, `,%s,{"role":"user","content":"two"}]}`, "output"},
	"messages": {"/messages", `{"model":"m","tools":[{"name":"look"}],"system":[{"text":"You test."}],"messages":[
		{"role":"user","content":[{"text":"one","cache_control":{"type":"ephemeral"}}]}]}`,
		`,{"role":"assistant","content":[%s]},{"role":"user","content":[{"text":"two","cache_control":{"type":"ephemeral"}}]}]}`, "content"},
}

// find returns the elements of the first member with the name, which may be in another one.
func find(v any, name string) (found string) {
	switch v := v.(type) {
	case map[string]any:
		if list, ok := v[name].([]any); ok {
			text, _ := json.Marshal(list)
			return string(text[1 : len(text)-1])
		}
		if one, ok := v[name]; ok {
			text, _ := json.Marshal(one)
			return string(text)
		}
		for _, member := range v {
			if found := find(member, name); found != "" {
				return found
			}
		}
	case []any:
		for _, element := range v {
			if found := find(element, name); found != "" {
				return found
			}
		}
	}
	return ""
}

// TestAnAccount repeats a signed answer, over each wire, after what it was signed over and after something else.
func TestAnAccount(t *testing.T) {
	for name, form := range requestForms {
		t.Run(name, func(t *testing.T) {
			account := &inferencetest.Account{}
			server := inferencetest.NewServer().Then(func(inferencetest.Recorded) inferencetest.Reply {
				return account.Say(inferencetest.Spoken{Thinking: "hmm", Text: "I look.", Finish: "tool_calls",
					Calls: []inferencetest.Call{{ID: "c1", Name: "look", Arguments: `{"b":1,"a":2}`}}})
			})
			url := server.Start(t) + form.path
			first := sendFor(t, url, form.body, http.StatusOK)
			var answer any
			if err := json.Unmarshal([]byte(first), &answer); err != nil {
				t.Fatal(err)
			}
			second := strings.TrimSuffix(form.body, "]}") + fmt.Sprintf(form.more, find(answer, form.answer))
			sendFor(t, url, second, http.StatusOK)
			bills := account.Bills()
			if got := bills[1]; got.Cached != bills[0].Input || got.Input <= got.Cached ||
				(got.Written > 0) != (name == "messages") || bills[0].Cached != 0 {
				t.Errorf("the cache gave %d of %d, and %d were written; before %+v", got.Cached, got.Input,
					got.Written, bills[0])
			}
			if extends, shared := bills[1].Extends(bills[0].Recorded); !extends || shared != bills[0].Input {
				t.Errorf("the second request extends the first: %t, %d bytes", extends, shared)
			}

			sendFor(t, url, strings.Replace(second, `,"cache_control":{"type":"ephemeral"}`, "", 1), http.StatusOK)
			for old, changed := range map[string]string{"You test.": "You rest.", `"look"}]`: `"look"},{"name":"b"}]`,
				`"one"`: `"another"`, "I look.": "I see.", "hmm": "oh", `"model":"m"`: `"model":"n"`, "c1": "c2"} {
				if !strings.Contains(second, old) {
					t.Fatalf("the request has no %s: %s", old, second)
				}
				refused := strings.ReplaceAll(second, old, changed)
				if got := sendFor(t, url, refused, http.StatusBadRequest); !strings.Contains(got,
					"Invalid `signature` in `thinking` block") {
					t.Errorf("the refusal is %s", got)
				}
			}
			if n := len(account.Refusals()); n != 7 || len(account.Bills()) != 3 {
				t.Errorf("%d refusals, %d bills", n, len(account.Bills()))
			}
		})
	}
}

// sendFor sends a request and returns the answer, which must have the status.
func sendFor(t *testing.T, url, body string, want int) string {
	t.Helper()
	status, _, text := postTo(t, url, body)
	if status != want {
		t.Errorf("status %d, want %d\n%s\n%s", status, want, body, text)
	}
	return text
}

// TestWhatACacheHoldsBeforeAMark checks that a cache finds what stands at most 20 blocks before a mark.
func TestWhatACacheHoldsBeforeAMark(t *testing.T) {
	account := &inferencetest.Account{}
	server := inferencetest.NewServer().Then(func(inferencetest.Recorded) inferencetest.Reply {
		return account.Say(inferencetest.Spoken{Text: "yes", Finish: "stop"})
	})
	url := server.Start(t) + "/messages"
	blocks := func(n int) string {
		all := slices.Repeat([]string{`{"text":"x"}`}, n)
		all[n-1] = `{"text":"x","cache_control":{"type":"ephemeral"}}`
		return `{"model":"m","messages":[{"role":"user","content":[` + strings.Join(all, ",") + `]}]}`
	}
	for _, n := range []int{10, 30, 51} {
		sendFor(t, url, blocks(n), http.StatusOK)
	}
	bills := account.Bills()
	if bills[1].Cached != bills[0].Input || bills[2].Cached != 0 {
		t.Errorf("of %d bytes %d were cached, then %d", bills[0].Input, bills[1].Cached, bills[2].Cached)
	}
}

// TestArgumentsThatNoClientCanRepeat repeats an answer with other arguments in place of some that are no object.
func TestArgumentsThatNoClientCanRepeat(t *testing.T) {
	for arguments, status := range map[string]int{`{"a":[1,`: http.StatusOK, `{"a":1}`: http.StatusBadRequest} {
		account := &inferencetest.Account{}
		server := inferencetest.NewServer().Then(func(inferencetest.Recorded) inferencetest.Reply {
			return account.Say(inferencetest.Spoken{Thinking: "hmm", Finish: "tool_calls",
				Calls: []inferencetest.Call{{ID: "c1", Name: "look", Arguments: arguments}}})
		})
		form := requestForms["chat"]
		url := server.Start(t) + form.path
		var answer any
		if err := json.Unmarshal([]byte(sendFor(t, url, form.body, http.StatusOK)), &answer); err != nil {
			t.Fatal(err)
		}
		quoted, _ := json.Marshal(arguments)
		sendFor(t, url, strings.TrimSuffix(form.body, "]}")+fmt.Sprintf(form.more,
			strings.Replace(find(answer, form.answer), string(quoted), `"{}"`, 1)), status)
	}
}
