package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"turnkeeper"
	"turnkeeper/policy"
	"turnkeeper/tools"
	"turnkeeper/tools/builtin"
)

func use(t *testing.T, all []tools.Tool, name, arguments string) tools.RunResult {
	t.Helper()
	return useAs(t, all, tools.Call{Agent: "helper"}, name, arguments)
}

// useAs calls one of the tools as a turn does: it checks the arguments, then runs it.
func useAs(t *testing.T, all []tools.Tool, call tools.Call, name, arguments string) tools.RunResult {
	t.Helper()
	r, err := tools.NewRegistry(all...)
	if err != nil {
		t.Fatal(err)
	}
	tool, ok := r.Get(name)
	if !ok {
		t.Fatalf("there is no tool %s", name)
	}
	args, fault := r.Check(name, arguments)
	if fault != "" {
		t.Fatal(fault)
	}
	call.Arguments = json.RawMessage(args.Canonical)
	return tools.Execute(t.Context(), tool, call, tools.ExecuteOptions{Timeout: time.Minute})
}

func wantText(t *testing.T, got tools.RunResult, want string) {
	t.Helper()
	if got.Outcome != tools.Succeeded || got.Result.Text != want {
		t.Errorf("ending = %+v, want %q", got, want)
	}
}

func wantFailure(t *testing.T, got tools.RunResult, want string) {
	t.Helper()
	if got.Outcome != tools.Failed || !strings.Contains(got.Result.Text, want) {
		t.Errorf("ending = %+v, want a failure with %q", got, want)
	}
}

func TestAll(t *testing.T) {
	type row struct {
		Name          string
		Effect        turnkeeper.Effect
		Transactional bool
	}
	want := []row{
		{"clock", turnkeeper.EffectNone, false},
		{"read_file", turnkeeper.EffectNone, false},
		{"list_files", turnkeeper.EffectNone, false},
		{"write_file", turnkeeper.EffectKeyed, false},
		{"http_get", turnkeeper.EffectNone, false},
		{"patch_output", turnkeeper.EffectNone, false},
		{"ask_person", turnkeeper.EffectNone, false},
		{"get_continuation", turnkeeper.EffectNone, false},
		{"get_tool_output", turnkeeper.EffectNone, false},
		{"wait_for_tool_output", turnkeeper.EffectNone, false},
		{"note_write", turnkeeper.EffectOnce, true},
		{"note_read", turnkeeper.EffectNone, false},
	}
	for _, tt := range []struct {
		name string
		deps builtin.Deps
		want []row
	}{
		{"all", builtin.Deps{Notes: &memory{}}, want},
		{"without a store", builtin.Deps{}, want[:10]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := tools.NewRegistry(builtin.All(tt.deps)...)
			if err != nil {
				t.Fatal(err)
			}
			var got []row
			for _, s := range r.Specs() {
				got = append(got, row{s.Name, s.Effect, s.Transactional})
				if s.Description == "" {
					t.Errorf("%s has no description", s.Name)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("tools (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClock(t *testing.T) {
	now := func() time.Time { return time.Date(2026, 1, 31, 23, 30, 0, 0, time.UTC) }
	clock := []tools.Tool{builtin.Clock(now)}
	for _, tt := range []struct{ name, args, want string }{
		{"UTC", `{}`, `{"time":"2026-01-31T23:30:00Z","weekday":"Saturday","timezone":"UTC","utc_offset":"+00:00"}`},
		{"a zone in which it is tomorrow", `{"timezone":"Europe/Berlin"}`,
			`{"time":"2026-02-01T00:30:00+01:00","weekday":"Sunday","timezone":"Europe/Berlin","utc_offset":"+01:00"}`},
	} {
		t.Run(tt.name, func(t *testing.T) { wantText(t, use(t, clock, "clock", tt.args), tt.want) })
	}
	for _, zone := range []string{"Mars/Olympus", "Local", "../../etc/passwd"} {
		wantFailure(t, use(t, clock, "clock", `{"timezone":"`+zone+`"}`), "there is no time zone")
	}
	if got := use(t, []tools.Tool{builtin.Clock(nil)}, "clock", ``); got.Outcome != tools.Succeeded {
		t.Errorf("with the real clock: %+v", got)
	}
}

// memory is a NoteStore in memory.
type memory struct {
	texts  map[string]string
	labels map[string][]policy.Mark
	fails  error
}

// place begins the keys of an owner's notes.
func place(owner turnkeeper.ConversationKey) string {
	return strings.Join([]string{owner.Agent, owner.User, owner.Name, ""}, "/")
}

func (m *memory) WriteNote(_ context.Context, owner turnkeeper.ConversationKey, name, text string,
	labels []policy.Mark) error {
	if m.texts == nil {
		m.texts = map[string]string{}
	}
	if m.labels == nil {
		m.labels = map[string][]policy.Mark{}
	}
	m.labels[place(owner)+name] = labels
	m.texts[place(owner)+name] = text
	return m.fails
}

func (m *memory) ReadNote(_ context.Context, owner turnkeeper.ConversationKey,
	name string) (string, []policy.Mark, bool, error) {
	text, ok := m.texts[place(owner)+name]
	return text, m.labels[place(owner)+name], ok, m.fails
}

func (m *memory) ListNotes(_ context.Context, owner turnkeeper.ConversationKey) ([]builtin.Note, error) {
	var notes []builtin.Note
	for key, text := range m.texts {
		if name, ok := strings.CutPrefix(key, place(owner)); ok {
			notes = append(notes, builtin.Note{Name: name, Chars: len(text), Labels: m.labels[key],
				UpdatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
		}
	}
	return notes, m.fails
}

// TestWhoseNotes checks that calls read what belongs to their user, without a user what belongs to their conversation,
// and what all share if the agent says so.
func TestWhoseNotes(t *testing.T) {
	call := func(user, conversation string, shared bool) tools.Call {
		return tools.Call{Agent: "helper", User: user, Conversation: conversation, SharedNotes: shared}
	}
	writers := []tools.Call{
		call("anna", "main", false), call("bert", "main", false), call("", "main", false), call("", "anna", false),
		call("anna", "main", true),
		call("anna/main", "x", false),
	}
	notes := builtin.NewNotes(&memory{})
	for i, writer := range writers {
		wantText(t, useAs(t, notes, writer, "note_write", fmt.Sprintf(`{"name":"n","text":"of %d"}`, i)),
			`Note "n" written, 4 characters.`)
	}
	for _, c := range []struct {
		reader tools.Call
		text   string
	}{
		{call("anna", "another", false), "of 0"}, {call("bert", "main", false), "of 1"}, {call("", "main", false),
			"of 2"}, {call("", "anna", false), "of 3"},
		{call("bert", "another", true), "of 4"}, {call("", "main", true), "of 4"},
		{call("anna/main", "y", false), "of 5"},
	} {
		wantText(t, useAs(t, notes, c.reader, "note_read", `{"name":"n"}`), c.text)
	}
	for _, reader := range []tools.Call{call("carl", "main", false), call("", "other", false)} {
		wantFailure(t, useAs(t, notes, reader, "note_read", `{"name":"n"}`), `There is no note "n".`)
		wantText(t, useAs(t, notes, reader, "note_read", `{}`), "There are no notes yet.")
	}
}

func TestNotes(t *testing.T) {
	store := &memory{texts: map[string]string{"other///secret": "not yours"}}
	notes := builtin.NewNotes(store)
	wantText(t, use(t, notes, "note_read", `{}`), "There are no notes yet.")
	wantText(t, use(t, notes, "note_write", `{"name":"plan","text":"größer"}`), `Note "plan" written, 6 characters.`)
	wantText(t, use(t, notes, "note_read", `{"name":"plan"}`), "größer")
	wantText(t, use(t, notes, "note_write", `{"name":"plan","text":""}`), `Note "plan" written, 0 characters.`)
	wantText(t, use(t, notes, "note_read", `{"name":"plan"}`), "")
	wantText(t, use(t, notes, "note_read", `{}`), "plan\t0 characters\t2026-01-02T03:04:05Z")
	wantFailure(t, use(t, notes, "note_read", `{"name":"secret"}`), `There is no note "secret".`)

	big := strings.Repeat("x", 64<<10)
	wantText(t, use(t, notes, "note_write", `{"name":"`+strings.Repeat("é", 100)+`","text":"`+big+`"}`),
		`Note "`+strings.Repeat("é", 100)+`" written, 65536 characters.`)
	for name, args := range map[string]string{
		"has 65537 bytes":                     `{"name":"a","text":"` + big + `x"}`,
		"has 101 characters":                  `{"name":"` + strings.Repeat("é", 101) + `","text":""}`,
		"has 0 characters":                    `{"name":"","text":""}`,
		"blanks around it":                    `{"name":" a","text":""}`,
		"blanks around it or a control chara": `{"name":"a\nb","text":""}`,
	} {
		wantFailure(t, use(t, notes, "note_write", args), name)
	}
}

// TestNoteStoreErrors tests that the store's error goes to operators and not to the model.
func TestNoteStoreErrors(t *testing.T) {
	down := errors.New("password=hunter2 refused")
	notes := builtin.NewNotes(&memory{fails: down})
	for name, args := range map[string]string{"note_write": `{"name":"a","text":"b"}`, "note_read": `{}`} {
		got := use(t, notes, name, args)
		wantFailure(t, got, "could not be")
		if strings.Contains(got.Result.Text, "hunter2") || !errors.Is(got.Err, down) {
			t.Errorf("%s: shown %q, error %v", name, got.Result.Text, got.Err)
		}
	}
}
