package storesuite

import (
	"strings"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
)

// longText has more bytes than one chunk holds, and characters of every width.
var longText = strings.Repeat("aé日😀 e\u0301שלום ", 8000)

func output(id turnkeeper.OutputID, text string) *turnkeeper.Output {
	return &turnkeeper.Output{
		ID: id, Text: text, MediaType: "text/plain", SizeBytes: int64(len(text)), RawBytes: int64(len(text)),
		Chars: int64(utf8.RuneCountInString(text)), SHA256: "s",
	}
}

func (d *dispatch) answerWith(k turnkeeper.CallKey, o *turnkeeper.Output) error {
	r := result(k, "", turnkeeper.CallSucceeded, "cut")
	r.Output = o
	return d.Append(d.env.Context(), turnlog.Entry{Results: []turnlog.CallResult{r}})
}

// wantText compares parts of an output with its text.
func (d *dispatch) wantText(id turnkeeper.OutputID, text string) {
	d.env.Helper()
	chars := []rune(text)
	n := int64(len(chars))
	for _, span := range [][2]int64{{0, n}, {0, 10}, {n / 2, n/2 + 3}, {n - 5, n + 100}, {n, n + 1}, {-3, 2}, {5, 5},
		{6, 5}, {n / 3, 2 * n / 3}} {
		got, err := d.env.Outputs().ReadOutput(d.env.Context(), d.grant.TurnID, id, span[0], span[1])
		from := min(max(span[0], 0), n)
		want := string(chars[from:max(from, min(span[1], n))])
		if span[0] < 0 { // it asks for as many characters as the span has
			want = string(chars[:min(max(span[1], 0), n)])
		}
		if err != nil || got != want {
			d.env.Errorf("%s, %v: %d bytes, want %d, error %v", id, span, len(got), len(want), err)
		}
	}
}

func readByCharacters(e *env) {
	d := e.planned(turnkeeper.EffectNone, turnkeeper.EffectNone)
	for i, text := range []string{"short é日😀", longText} {
		id := turnkeeper.OutputID([]string{"short", "long"}[i])
		wantErr(e, "the result", d.answerWith(key(1, i+1), output(id, text)), nil)
		d.wantText(id, text)
	}
	o, err := e.Outputs().DescribeOutput(e.Context(), d.grant.TurnID, "long")
	wantErr(e, "description", err, nil)
	equal(e, "text", o.Text, "")
	equal(e, "size", o.SizeBytes, int64(len(longText)))
	_, err = e.Outputs().ReadOutput(e.Context(), d.grant.TurnID+1, "long", 0, 1)
	wantErr(e, "read from another turn", err, turnkeeper.ErrNotFound)
}

// draft writes a text in parts that end between characters.
func (d *dispatch) draft(id turnkeeper.OutputID, text string) {
	d.env.Helper()
	part := turnlog.OutputPart{Output: id}
	for rest := text; rest != ""; {
		n := min(len(rest), outputs.ChunkBytes+100)
		for n < len(rest) && !utf8.RuneStart(rest[n]) {
			n++
		}
		part.Text = rest[:n]
		wantErr(d.env, "a part", d.Journal.(toolrun.Drafts).WriteDraft(d.env.Context(), part), nil)
		part.FirstByte += int64(n)
		part.FirstChar += int64(utf8.RuneCountInString(part.Text))
		rest = rest[n:]
	}
}

func drafted(id turnkeeper.OutputID, text string) *turnkeeper.Output {
	o := output(id, text)
	o.Text, o.Drafted = "", true
	return o
}

func (d *dispatch) wantMissing(id turnkeeper.OutputID) {
	d.env.Helper()
	_, err := d.env.Outputs().DescribeOutput(d.env.Context(), d.grant.TurnID, id)
	wantErr(d.env, "describing an output that is not recorded", err, turnkeeper.ErrNotFound)
	_, err = d.env.Outputs().ReadOutput(d.env.Context(), d.grant.TurnID, id, 0, 1)
	wantErr(d.env, "reading an output that is not recorded", err, turnkeeper.ErrNotFound)
}

func draftRecorded(e *env) {
	d := e.planned(turnkeeper.EffectNone)
	d.draft("o", longText)
	d.wantMissing("o")
	e.Keeper().Sweep() // keeps drafts that are still being written
	wantErr(e, "a part of the result without the rest", d.answerWith(key(1, 1), drafted("other", longText)),
		turnkeeper.ErrJournalMoved)
	wantErr(e, "the result", d.answerWith(key(1, 1), drafted("o", longText)), nil)
	d.wantText("o", longText)
	// A recorded output does not change any more.
	drafts := d.Journal.(toolrun.Drafts)
	for _, late := range []turnlog.OutputPart{{}, {FirstByte: int64(len(longText)),
		FirstChar: int64(utf8.RuneCountInString(longText))}} {
		late.Output, late.Text = "o", "late"
		wantErr(e, "a late part", drafts.WriteDraft(e.Context(), late), nil)
	}
	wantErr(e, "a late drop", drafts.DropDraft(e.Context(), "o"), nil)
	e.Keeper().Sweep()
	d.wantText("o", longText)
}

func draftUnrecorded(e *env) {
	d := e.planned(turnkeeper.EffectNone)
	d.draft("lost", longText)
	d.draft("dropped", longText)
	wantErr(e, "a drop", d.Journal.(toolrun.Drafts).DropDraft(e.Context(), "dropped"), nil)
	after := e.again(d)
	wantErr(e, "the lost worker's result", d.answerWith(key(1, 1), drafted("lost", longText)), turnkeeper.ErrFenced)
	e.Keeper().Sweep()
	d.draft("lost", "too late") // its worker has not noticed the loss yet
	for _, id := range []turnkeeper.OutputID{"lost", "dropped"} {
		wantErr(e, "another's parts as a result", after.answerWith(key(1, 1), drafted(id, longText)),
			turnkeeper.ErrJournalMoved)
		after.wantMissing(id)
	}
	after.draft("o", longText)
	wantErr(e, "the result", after.answerWith(key(1, 1), drafted("o", longText)), nil)
	after.wantText("o", longText)
}

func partTwice(e *env) {
	d := e.planned(turnkeeper.EffectNone)
	drafts := d.Journal.(toolrun.Drafts)
	for _, done := range []bool{true, false} {
		e.CutNext(done)
		id := turnkeeper.OutputID(map[bool]string{true: "done", false: "not"}[done])
		wantErr(e, "the part", drafts.WriteDraft(e.Context(), turnlog.OutputPart{Output: id, Text: "first, "}), nil)
		wantErr(e, "the next part", drafts.WriteDraft(e.Context(), turnlog.OutputPart{Output: id, FirstByte: 7,
			FirstChar: 7, Text: "second"}), nil)
	}
	wantErr(e, "the result", d.answerWith(key(1, 1), drafted("done", "first, second")), nil)
	d.wantText("done", "first, second")
}
