package core_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"turnkeeper/inference/inferencetest"
	"turnkeeper/tests/internal/env"
)

// The next worker to start removes the drafts of a lost worker. Recorded results stay.
func TestPartsThatWereLeftBehind(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "tools: [mark_large]")
	e.Model.Then(env.Rounds(env.MarkerReply("mark_large", "a"), inferencetest.Text("done")))
	first := e.StartWorker()
	e.WantEnd(e.TurnOf(e.Enqueue("clerk", "Do it.")), "succeeded", "none", 2)
	if code := first.Terminate(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	kept := env.Query[int](e, "select count(*) from output_chunks")
	e.Exec("insert into output_drafts (output_id, turn_id, grant_id) select 'left', turn_id, grant_id from lease_log")
	e.Exec("insert into output_chunks (output_id, first_char, content) values ('left', 0, 'behind')")
	e.StartWorker()
	e.Await("the abandoned drafts are removed",
		"select not exists (select from output_drafts) and not exists (select from output_chunks where output_id = 'left')")
	if n := env.Query[int](e, "select count(*) from output_chunks"); n != kept || n < 16 {
		t.Errorf("%d chunks remain of %d", n, kept)
	}
}

// streamPeak is the maximum peak memory of a worker that only reads streams.
const streamPeak = 96 << 20

// A result of a gigabyte needs little memory.
func TestAWorkerIsNotFilledByStreams(t *testing.T) {
	t.Parallel()
	e := env.New(t)
	e.WriteAgent("clerk", "tools: [overdo]", "async_timeout: 0")
	e.Model.Then(env.Rounds(inferencetest.Calls(inferencetest.Call{ID: "g", Name: "overdo",
		Arguments: `{"how":"gigabyte"}`}), inferencetest.Text("done")))
	w := e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Read."))
	if got := turn.CallsByWireID()["g"]; got.State != "succeeded" {
		t.Errorf("the call is %s: %.200s", got.State, got.Result)
	}
	checkPeak(w, streamPeak)
}

// Ten of a page's 12 MB are stored. A model reads parts anywhere in them; the page is fetched once, and the
// model gets little of it.
func TestAPageOfTwelveMegabytes(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	for i := 0; lines.Len() < 12_000_000; i++ {
		fmt.Fprintf(&lines, "line %d, é日😀\n", i)
	}
	whole := lines.String()
	chars := []rune(whole[:10_000_000]) // cut at, or within, a character
	fetched := 0
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetched++
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", fmt.Sprint(len(whole)))
		_, _ = w.Write([]byte(whole))
	}))
	t.Cleanup(site.Close)
	address, err := url.Parse(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	e := env.New(t)
	e.WriteAgent("clerk", "tools: [http_get]", "allow_private_hosts: ["+address.Hostname()+"]",
		"max_tool_result_chars: 4000", "async: false")
	slice := func(id, slice string) inferencetest.Call {
		return inferencetest.Call{ID: id, Name: "get_tool_output",
			Arguments: `{"id":"call_get","mode":"slice","slice":` + slice + `}`}
	}
	e.Model.Then(env.Rounds(
		inferencetest.Calls(inferencetest.Call{ID: "call_get", Name: "http_get",
			Arguments: `{"url":` + env.Quote(site.URL) + `}`}),
		inferencetest.Calls(page("far", `{"tool_call_id":"call_get","offset":7000000}`),
			slice("anchor", `{"anchor":"line 400000,","window":40}`),
			slice("part", `{"start":6999990,"length":20}`), slice("lost", `{"anchor":"line 520000,"}`)),
		inferencetest.Text("done"),
	))
	w := e.StartWorker()
	turn := e.TurnOf(e.Enqueue("clerk", "Read."))
	e.WantEnd(turn, "succeeded", "none", 3)
	got := turn.CallsByWireID()
	note := fmt.Sprintf("\n\n[cut: the result had %d bytes; what is missing at its end was not kept]", len(whole))
	before, _, _ := strings.Cut(whole, "line 400000,")
	anchor := utf8.RuneCountInString(before)
	total := env.Query[int](e, "select chars from outputs")
	for id, want := range map[string]string{
		"call_get": string(chars[:4000]) + fmt.Sprintf(
			"\n\n[truncated — showing 4000/%d chars. Call get_continuation with tool_call_id=\"call_get\" to read more]", total) + note,
		"far": string(chars[7_000_000:7_004_000]) +
			fmt.Sprintf(
				"\n\n[truncated — showing 7000000-7004000/%d chars. %d chars remaining. Call get_continuation with tool_call_id=\"call_get\" offset=7004000 to read more]",
				total, total-7_004_000),
		"anchor": fmt.Sprintf("[chars %d-%d of %d]\n", anchor-20, anchor+12+20, total) +
			string(chars[anchor-20:anchor+12+20]),
		"part": fmt.Sprintf("[chars 6999990-7000010 of %d]\n", total) + string(chars[6_999_990:7_000_010]),
		"lost": `{"error":"Anchor not found in content"}`,
	} {
		if got[id].Result != want {
			t.Errorf("%s is answered\n%.300q, not\n%.300q", id, got[id].Result, want)
		}
	}
	if kept := env.Query[int](e, "select size_bytes from outputs"); fetched != 1 || kept > 10_000_000 ||
		kept < 9_999_990 {
		t.Errorf("fetched %d times, %d bytes are kept", fetched, kept)
	}
	checkPeak(w, streamPeak)
}
