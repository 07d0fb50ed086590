package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"turnkeeper/inference"
	"turnkeeper/inference/openai/completions"
	"turnkeeper/internal/golden"
)

// answersOfServers are answers with all members that are read, each in the forms that servers give it. A stream has
// several lines, each an event.
var answersOfServers = []string{
	// Texts, and what is said of the answer.
	`{"id":"r1","model":"m-1","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}
{"id":"r2","model":"m-2","choices":[{"index":0,"delta":{"content":"lo \ud83c"}}]}
{"choices":[{"index":0,"delta":{"content":"\udf0d"}},{"index":1,"delta":{"content":"another"}}]}
{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}
{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":12,"prompt_tokens_details":{"cached_tokens":13,"cache_write_tokens":16},"completion_tokens_details":{"reasoning_tokens":14},"cost":0.00015}}
[DONE]`,
	`{"id":"r1","model":"m-1","choices":[{"message":{"role":"assistant","content":"whole","refusal":"no","reasoning":"why","reasoning_content":"because"},"finish_reason":"stop"}], "usage":{"prompt_tokens":-1,"completion_tokens":9007199254740992,"prompt_cache_hit_tokens":"15","prompt_tokens_details":{"cached_tokens":7,"cache_write_tokens":-1},"cost":"1e-7"}}`,
	`{"choices":[{"delta":{"content":"half \ud83c","reasoning":"half \ud83c","refusal":"half \ud83c"},"finish_reason":"stop"}]}
[DONE]`,
	`{"choices":[{"message":{"content":"native","tool_calls":null},"finish_reason":"stop","native_finish_reason":"MAX_TOKENS"}]}`,
	`{"choices":[{"message":{"content":"native"},"finish_reason":"length","native_finish_reason":"STOP"}]}`,
	`{"choices":[{"delta":{"content":"twice"},"finish_reason":"length"}]}
{"choices":[{"delta":{},"finish_reason":"stop"}]}
[DONE]`,
	`{"choices":[{"delta":{"content":"no reason"}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}
[DONE]`,
	// Reasoning.
	`{"choices":[{"delta":{"reasoning":"think \ud83c"}}]}
{"choices":[{"delta":{"reasoning":"\udf0d","reasoning_details":[{"type":"reasoning.text","index":0,"text":"a","signature":null},{"type":"reasoning.summary","index":0,"summary":"s"}]}}]}
{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.summary","index":0,"summary":"t"},{"type":"reasoning.encrypted","data":"x","id":"1"},{"type":"reasoning.encrypted","data":"y","format":null}]}}]}
{"choices":[{"delta":{"reasoning_content":"both","reasoning":"ignored","content":"said","extra_content":{"google":{"thought":true}}},"finish_reason":"stop"}]}
[DONE]`,
	`{"choices":[{"delta":{"content":"first "}}]}
{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"},"m"]},{"type":"text","text":"second "},"third ",7,null]}}]}
{"choices":[{"delta":{"content":"fourth"},"finish_reason":"stop"}]}
[DONE]`,
	`{"choices":[{"message":{"content":[{"type":"reasoning","text":"why "},{"type":"thinking","thinking":" text"},{"type":"text","text":"so"},{"type":"image"}]},"finish_reason":"stop"}]}`,
	`{"choices":[{"message":{"content":"<think>hm</think>so","extra_content":7,"reasoning_details":{"type":"a","text":7}},"finish_reason":"stop"}]}`,
	// Calls.
	`{"choices":[{"delta":{"content":"Look. ","tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"clock","arguments":""}}]}}]}
{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"read_file","arguments":"{\"p\":"},"extra_content":{"sign":"x"}},{"index":0,"function":{"arguments":"{\"a\":1}","more":1}}]}}]}
{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"arguments":"\"x\"}"},"extra_content":null}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":5,"completion_tokens":6}}
[DONE]`,
	`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"a","function":{"name":"clock","arguments":{"a": [1, 2]}},"type":"function"},{"id":"","function":{"name":"","arguments":null}},{"function":{"name":"clock"}}]},"finish_reason":"tool_calls"}]}`,
	`{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}]},"finish_reason":"length"}]}`,
	`{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}]},"finish_reason":"eek"}]}`,
	`{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"clock"},"input":{"a":1}}]},"finish_reason":"stop"}]}`,
	`{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{}","Args":"{\"a\":1}"}}]},"finish_reason":"stop"}]}`,
	`{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"clock"},"strange":"xy"}]},"finish_reason":"stop"}]}`,
	`{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"clock"},"strange":7,"status":"done","signature":"xy"}]},"finish_reason":"stop"}]}`,
	`{"choices":[{"message":{"function_call":{"name":"clock","arguments":"{\"b\":2}"},"tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}]},"finish_reason":"stop"}]}`,
	`{"choices":[{"message":{"function_call":{"name":"clock","arguments":"{ \"a\":1}"},"tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}]},"finish_reason":"stop"}]}`,
	`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}]}}]}
{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{\"a\":2}"}}]},"finish_reason":"tool_calls"}]}
[DONE]`,
	`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"clock","arguments":"{}"}}]}},{"delta":{"content":"?"},"finish_reason":"tool_calls"}]}
[DONE]`,
	"{\"choices\":[{\"message\":{\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"clock\",\"arguments\":\"{\\\"a\\\":\\\"\xff\\\"}\"}}]},\"finish_reason\":\"stop\"}]}",
	`{"choices":[{"message":{"content":"<tool_call>{\"name\":\"clock\",\"arguments\":{}}</tool_call>"},"finish_reason":"stop"}]}`,
	`{"choices":[{"message":{"content":"I look:\n<tool_call>{\"name\":\"clock\",\"arguments\":{}}</tool_call>","tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{}"}}]},"finish_reason":"stop"}]}`,
	`{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":100}}`,
	`{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"clock","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":99}}`,
	// Answers that are none.
	`{"choices":[{"message":{"refusal":"I will not."},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`,
	`{"choices":[{"message":{"content":" "},"finish_reason":"content_filter"}]}`,
	`{"choices":[{"message":{},"finish_reason":"model_context_window_exceeded"}]}`,
	`{"choices":[{"message":{},"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":0}}`,
	`{"choices":[{"message":{},"finish_reason":"length"}]}`,
	`{"choices":[{"message":{"content":"\u0000"},"finish_reason":"stop"}]}`, `{"choices":[]}`, `{"choices":[null]}`,
	`{"choices":[{"index":1,"message":{"content":"x"},"finish_reason":"stop"}]}`,
	`{"choices":[{"message":{"content":"x"},"finish_reason":"error"}]}`,
	`{"choices":[{"message":{"content":"x"},"error":{"code":429,"message":"slower"}}]}`,
	`{"error":{"code":"insufficient_quota","message":"pay"}}`, `{"choices":"x"}`, `<html><title>T</title>`,
	`[{"error":{"message":"a list","code":503}}]`, `null`, `not JSON`,
	`{"choices":[{"delta":{"content":"x"}}]}
{"error":{"code":503,"message":"later"}}`,
	`{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":3,"completion_tokens":4}}
oops`,
	`{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}
oops
{"usage":{"prompt_tokens":3,"completion_tokens":4}}`,
	`{"choices":[{"delta":{"content":"x"}}]}
[{"error":{"code":529,"message":"a list"}}]`,
	`{"choices":[{"delta":{"content":"x"}}]}`,
}

// A reading is what is read of an answer.
type reading struct {
	deltas   []string
	response inference.Response
	failure  *inference.Error
}

func (r reading) String() string {
	text := "  " + strings.Join(r.deltas, " ") + "\n"
	if r.failure != nil {
		return text + "  " + facts(r.failure) + ": " + r.failure.Detail
	}
	data, _ := json.Marshal(r.response) //nolint:errchkjson // texts and numbers
	return text + "  " + string(data)
}

// readAnswer reads an answer to a request with tools that may have 100 tokens. Its end does not show whether it was
// cut.
func readAnswer(t *testing.T, answer io.Reader, stream bool) (r reading) {
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		ContentLength: -1, ProtoMajor: 1}
	if stream {
		res.Header.Set("Content-Type", "text/event-stream; charset=utf-8")
	}
	req := inference.Request{MaxOutputTokens: 100, Tools: []inference.ToolDefinition{{Name: "clock"},
		{Name: "read_file"}}}
	r.response, r.failure = completions.Read(t.Context(), res, answer, req, inference.PlainHabit(),
		func(d inference.Delta) {
			if d.Done {
				d.Name = "is whole"
			}
			r.deltas = append(r.deltas, fmt.Sprintf("%s %d %s %q;", d.Kind, d.Index, d.Name, d.Text))
		})
	return r
}

// TestAnswersOfServers compares everything that is read of answers with testdata. The size of the pieces in which an
// answer arrives, and the ends of its lines, change nothing. Of a stream that is cut, either the same is read or
// nothing.
func TestAnswersOfServers(t *testing.T) {
	var lines []string
	for _, answer := range answersOfServers {
		first, _, stream := strings.Cut(answer, "\n")
		sent := answer
		if stream {
			sent = "data: " + strings.ReplaceAll(answer, "\n", "\n\ndata: ") + "\n\n"
		}
		whole := readAnswer(t, strings.NewReader(sent), stream)
		lines = append(lines, fmt.Sprintf("%s\n%s", answer, whole))
		again := map[string]reading{"one byte at a time": readAnswer(t, iotest.OneByteReader(strings.NewReader(sent)),
			stream)}
		if stream {
			again["other ends of lines"] = readAnswer(t, strings.NewReader(strings.ReplaceAll(sent, "\n", "\r\n")),
				true)
			again["old ends of lines"] = readAnswer(t,
				iotest.HalfReader(strings.NewReader("\ufeff"+strings.ReplaceAll(sent, "\n", "\r"))), true)
			again["without a space"] = readAnswer(t, strings.NewReader(": comment\nevent: x\n"+strings.ReplaceAll(sent,
				"data: ", "data:")), true)
		}
		for how, got := range again {
			if got.String() != whole.String() {
				t.Errorf("%s\n%s, it is\n%s\nwant\n%s", first, how, got, whole)
			}
		}
		for cut := 0; stream && whole.failure == nil && cut < len(sent); cut += 1 + cut%3 {
			got := readAnswer(t, strings.NewReader(sent[:cut]), true)
			if got.failure == nil && !alike(got.response, whole.response) {
				t.Errorf("%s\ncut after %q, it is\n%s\nwant\n%s", first, sent[max(0, cut-40):cut], got, whole)
			}
		}
	}
	golden.File(t, "testdata/answers.txt", strings.Join(lines, "\n")+"\n")
}

// alike reports whether two answers say the same and call the same tools.
func alike(a, b inference.Response) bool {
	return a.Text == b.Text && a.Reasoning == b.Reasoning && fmt.Sprint(a.Calls) == fmt.Sprint(b.Calls)
}
