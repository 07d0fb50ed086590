package journal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage"
	"turnkeeper/storage/grants"
	"turnkeeper/storage/storagetest"
)

// hostile holds texts that Postgres or JSON may refuse.
var hostile = []string{
	"", "plain", "a\x00b", "\x00", "a\xff\xfeb", "\xed\xa0\x80", "\xc3", `\u0000`, `\ud800`, `"\ud800\u0000"`,
	"\u2028\ufeff\ufffd",
	"🌍 Grüße", "'; drop table turnkeeper.turns; --", `\`, "{\"a\":\"\x00\"}", strings.Repeat("ä", 3000),
	"\r\n\t\x01\x1f\x7f", "1e999999",
}

// writeEverywhere writes a text to every free-text field of a turn, and returns the stored values.
func writeEverywhere(t testing.TB, h *env, text string) map[string]string {
	t.Helper()
	d := h.Turn("x")
	r := storagetest.Round(1, turnkeeper.EffectNone, turnkeeper.EffectOnce)
	r.Provider, r.Model, r.FinishReason, r.Text, r.Reasoning, r.Raw = text, text, text, text, text, []byte(text)
	for i := range r.Calls {
		c := &r.Calls[i]
		c.WireID, c.ProviderID, c.Name, c.Arguments, c.RawArgs = fmt.Sprint(i, text), text, text, text, text
	}
	r.Calls = append(r.Calls, turnkeeper.ToolCall{
		Key: storagetest.Key(1, 3), WireID: "third", Name: "t", Effect: turnkeeper.EffectNone,
		State: turnkeeper.CallDenied, Shown: text, Preview: text,
	})
	data, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		t.Fatal(err)
	}
	d.Write(t, turnlog.Entry{
		Round: r, Events: []turnkeeper.Event{{Type: turnkeeper.EventBlockDelta, Data: data}},
		Starts: []turnlog.CallStart{storagetest.Start(storagetest.Key(1, 2), fmt.Sprint(d.Grant.TurnID), 1,
			turnkeeper.EffectOnce)},
	})
	read := storagetest.Result(storagetest.Key(1, 1), "", turnkeeper.CallSucceeded, text)
	outputID := turnkeeper.OutputID(fmt.Sprint("out-", d.Grant.TurnID))
	read.Output = &turnkeeper.Output{ID: outputID, Text: text, MediaType: text, Description: text}
	d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{read}})
	h.Lose(d)
	if err := d.Late(t.Context(), storagetest.Result(storagetest.Key(1, 2), fmt.Sprint(d.Grant.TurnID),
		turnkeeper.CallSucceeded, text)); err != nil {
		t.Fatal(err)
	}
	d = h.Dispatch("worker-2")[0]
	err = d.Append(t.Context(), turnlog.Entry{Outcome: &turnlog.Outcome{
		State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopNone, Reply: "re: " + text, InnerDialogue: text,
		Error: text, ErrorClass: text,
	}}, storagetest.Answered)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if err := h.WriteNote(t.Context(), turnkeeper.ConversationKey{Agent: "clerk"}, text, text, nil); err != nil {
		t.Fatal(err)
	}
	return h.readEverywhere(t, d.Grant.TurnID, outputID, text)
}

func (h *env) readEverywhere(t testing.TB, turn turnkeeper.TurnID, id turnkeeper.OutputID,
	note string) map[string]string {
	t.Helper()
	view, err := h.ViewTurn(t.Context(), turn)
	if err != nil {
		t.Fatal(err)
	}
	output, err := h.Output(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := h.Events(t.Context(), turn, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	var data map[string]string
	if err := json.Unmarshal(stream[0].Data, &data); err != nil {
		t.Fatal(err)
	}
	text, _, found, err := h.ReadNote(t.Context(), turnkeeper.ConversationKey{Agent: "clerk"}, note)
	if err != nil || !found {
		t.Fatalf("note found %v, error %v", found, err)
	}
	r := view.Rounds[0]
	a, b, c := r.Calls[0], r.Calls[1], r.Calls[2]
	return map[string]string{
		"provider": r.Provider, "model": r.Model, "finish reason": r.FinishReason, "text": r.Text,
		"reasoning": r.Reasoning, "raw": string(r.Raw),
		"wire id": strings.TrimPrefix(a.WireID, "0"), "provider id": a.ProviderID, "name": a.Name,
		"arguments": a.Arguments, "raw arguments": a.RawArgs,
		"shown": a.Shown, "preview": a.Preview, "late shown": b.Shown, "late preview": b.Preview, "denied": c.Shown,
		"denied preview": c.Preview,
		"output":         output.Text, "media type": output.MediaType, "description": output.Description,
		"event": data["text"],
		"reply": strings.TrimPrefix(view.Reply.Body, "re: "), "inner dialogue": view.Turn.InnerDialogue,
		"error":       view.Turn.Error,
		"error class": view.Turn.ErrorClass, "last error": view.Message.LastError, "note": text,
	}
}

// stored returns the expected stored form of a text: invalid UTF-8 is replaced, NUL removed.
func stored(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}

func checkStored(t testing.TB, h *env, text string) {
	t.Helper()
	got := writeEverywhere(t, h, text)
	want := map[string]string{}
	for field := range got {
		want[field] = stored(text)
	}
	// JSON encodes each invalid byte in its own way, and may keep NUL.
	want["event"] = got["event"]
	if !utf8.ValidString(got["event"]) || strings.ReplaceAll(got["event"], "\x00", "") != stored(text) &&
		utf8.ValidString(text) {
		t.Errorf("%q became the event %q", text, got["event"])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%q (-want +got):\n%s", text, diff)
	}
}

func TestEveryTextIsStored(t *testing.T) {
	h := newEnv(t)
	for _, text := range hostile {
		checkStored(t, h, text)
	}
}

func FuzzStorable(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	h := newEnv(f)
	f.Fuzz(func(t *testing.T, text string) {
		own := *h.DB
		own.T = t
		checkStored(t, &env{&own}, text)
	})
}

// Raw event data from a tool or a provider is stored unchanged, including escapes that jsonb would
// refuse.
func TestEventDataKeepsEveryEscape(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	for _, data := range []string{`{"a":"\u0000"}`, `{"a":"\ud800"}`, `{"n":1e400}`, `{"a":1,"a":2}`, `[]`, `null`} {
		d.Write(t, turnlog.Entry{Events: []turnkeeper.Event{{Type: turnkeeper.EventNotice,
			Data: json.RawMessage(data)}}})
		got, err := h.Events(t.Context(), d.Grant.TurnID, 0, 100)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if last := got[len(got)-1].Data; string(last) != data {
			t.Errorf("%s became %s", data, last)
		}
	}
	d.Write(t, turnlog.Entry{Events: []turnkeeper.Event{{Type: turnkeeper.EventNotice}}})
}

func TestBinaryOutput(t *testing.T) {
	h := newEnv(t)
	d := h.Turn("x")
	for name, bytes := range map[string][]byte{"some": {0, 255, 1}, "none": {}} {
		r := storagetest.Round(len(roundsOf(t, h, d))+1, turnkeeper.EffectNone)
		d.Write(t, turnlog.Entry{Round: r})
		read := storagetest.Result(r.Calls[0].Key, "", turnkeeper.CallSucceeded, "binary")
		read.Output = &turnkeeper.Output{ID: turnkeeper.OutputID(name), Bytes: bytes}
		d.Write(t, turnlog.Entry{Results: []turnlog.CallResult{read}})
		got, err := h.Output(t.Context(), turnkeeper.OutputID(name))
		if err != nil || string(got.Bytes) != string(bytes) || got.Bytes == nil || got.Text != "" {
			t.Errorf("%s: %v, text %q, error %v", name, got.Bytes, got.Text, err)
		}
	}
}

// With a mask, no table contains the secret, whichever field it was in.
func TestMaskedTextReachesNoTable(t *testing.T) {
	const secret = "sk-hush-hush"
	h := newEnv(t)
	masked := storagetest.OpenWith(t, storage.Options{
		URL: h.URL, Mask: func(text string) string { return strings.ReplaceAll(text, secret, "[redacted]") },
	})
	h.DB = masked
	for field, text := range writeEverywhere(t, h, "key "+secret+"!") {
		if text != "key [redacted]!" {
			t.Errorf("%s is %q", field, text)
		}
	}
	h.Turn("y")
	h.Exec(
		"update turnkeeper.leases set granted_at = granted_at - interval '1 hour', lease_until = clock_timestamp() where grant_id is not null")
	h.Tick(func(ctx context.Context, tick *grants.Tick) error {
		lost, err := tick.Lost(ctx, 1)
		if err != nil {
			return err
		}
		return tick.Close(ctx, lost[0], turnlog.Outcome{
			State: turnkeeper.TurnDegraded, StopReason: turnkeeper.StopWorkerLost, Reply: secret, Error: secret,
			InnerDialogue: secret, ErrorClass: secret,
		}, []turnkeeper.Event{{Type: turnkeeper.EventTurnComplete, Data: []byte(`{"reply":"` + secret + `"}`)}})
	})
	for _, table := range tables(h) {
		if n := storagetest.One[int](h, "select count(*) from turnkeeper."+table+" r where r::text like '%'||$1||'%'",
			secret); n != 0 {
			t.Errorf("%d rows of %s hold the secret", n, table)
		}
	}
}

// A secret of digits leaves the numbers of a recipe as they are, in the newest answer of a write and in an earlier one.
func TestASecretOfDigitsSparesRecipes(t *testing.T) {
	const secret = "163154"
	h := newEnv(t)
	h.DB = storagetest.OpenWith(t, storage.Options{
		URL: h.URL, Mask: func(text string) string { return strings.ReplaceAll(text, secret, "[redacted]") },
	})
	d := h.Turn("x")
	recipe := turnkeeper.Recipe{Version: 2, SHA256: "ab" + secret, Bytes: 7163154, Notice: "the code is " + secret,
		Window: turnkeeper.Window{Factor: 0.9163154}}
	first, second := storagetest.Round(1), storagetest.Round(2)
	first.Recipe, second.Recipe = &recipe, &recipe
	d.Write(t, turnlog.Entry{Earlier: []turnlog.Entry{{Round: first}}, Round: second})
	want := recipe
	want.Notice = "the code is [redacted]"
	rounds := h.Take(d.Grant.TurnID, d.Grant.GrantID, d.Grant.JobID, "worker-1").Record.Rounds
	for _, r := range rounds {
		if diff := cmp.Diff(&want, r.Recipe); diff != "" {
			t.Errorf("round %d (-want +got):\n%s", r.Number, diff)
		}
	}
	if len(rounds) != 2 {
		t.Errorf("%d rounds", len(rounds))
	}
}

func tables(h *env) (names []string) {
	h.T.Helper()
	all := storagetest.One[string](h,
		"select string_agg(relname, ' ') from pg_class where relnamespace = 'turnkeeper'::regnamespace and relkind = 'r'")
	return strings.Fields(all)
}

func roundsOf(t testing.TB, h *env, d *storagetest.Dispatch) []turnkeeper.Round {
	t.Helper()
	view, err := h.ViewTurn(t.Context(), d.Grant.TurnID)
	if err != nil {
		t.Fatal(err)
	}
	return view.Rounds
}
