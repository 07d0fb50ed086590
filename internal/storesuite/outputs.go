package storesuite

import (
	"strings"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/agentturn/toolrun"
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
	return d.Append(d.h.Context(), turnkeeper.Entry{Results: []turnkeeper.CallResult{r}})
}

// reads holds what is read of an output against its text.
func (d *dispatch) reads(id turnkeeper.OutputID, text string) {
	d.h.Helper()
	chars := []rune(text)
	n := int64(len(chars))
	for _, span := range [][2]int64{{0, n}, {0, 10}, {n / 2, n/2 + 3}, {n - 5, n + 100}, {n, n + 1}, {-3, 2}, {5, 5}, {6, 5}, {n / 3, 2 * n / 3}} {
		got, err := d.h.Outputs().ReadOutput(d.h.Context(), d.grant.TurnID, id, span[0], span[1])
		from := min(max(span[0], 0), n)
		want := string(chars[from:max(from, min(span[1], n))])
		if span[0] < 0 { // as many characters are asked for as lie between
			want = string(chars[:min(max(span[1], 0), n)])
		}
		if err != nil || got != want {
			d.h.Errorf("%s, %v: %d bytes, want %d, error %v", id, span, len(got), len(want), err)
		}
	}
}

func readByCharacters(h *house) {
	d := h.planned(turnkeeper.EffectNone, turnkeeper.EffectNone)
	for i, text := range []string{"short é日😀", longText} {
		id := turnkeeper.OutputID([]string{"short", "long"}[i])
		isIt(h, "the result", d.answerWith(key(1, i+1), output(id, text)), nil)
		d.reads(id, text)
	}
	o, err := h.Outputs().DescribeOutput(h.Context(), d.grant.TurnID, "long")
	isIt(h, "its description", err, nil)
	equal(h, "its text", o.Text, "")
	equal(h, "its size", o.SizeBytes, int64(len(longText)))
	_, err = h.Outputs().ReadOutput(h.Context(), d.grant.TurnID+1, "long", 0, 1)
	isIt(h, "read from another turn", err, turnkeeper.ErrNotFound)
}

// draft writes a text in parts, which end where they may.
func (d *dispatch) draft(id turnkeeper.OutputID, text string) {
	d.h.Helper()
	part := turnkeeper.OutputPart{Output: id}
	for rest := text; rest != ""; {
		n := min(len(rest), turnkeeper.OutputChunkBytes+100)
		for n < len(rest) && !utf8.RuneStart(rest[n]) {
			n++
		}
		part.Text = rest[:n]
		isIt(d.h, "a part", d.Journal.(toolrun.Drafts).WriteDraft(d.h.Context(), part), nil)
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

func (d *dispatch) unseen(id turnkeeper.OutputID) {
	d.h.Helper()
	_, err := d.h.Outputs().DescribeOutput(d.h.Context(), d.grant.TurnID, id)
	isIt(d.h, "describing an output that is not recorded", err, turnkeeper.ErrNotFound)
	_, err = d.h.Outputs().ReadOutput(d.h.Context(), d.grant.TurnID, id, 0, 1)
	isIt(d.h, "reading an output that is not recorded", err, turnkeeper.ErrNotFound)
}

func seenWhenRecorded(h *house) {
	d := h.planned(turnkeeper.EffectNone)
	d.draft("o", longText)
	d.unseen("o")
	h.Sweep() // of what is still coming nothing is swept
	isIt(h, "a part of the result without the rest", d.answerWith(key(1, 1), drafted("other", longText)), turnkeeper.ErrJournalMoved)
	isIt(h, "the result", d.answerWith(key(1, 1), drafted("o", longText)), nil)
	d.reads("o", longText)
	// It stays as it is, whatever comes late.
	drafts := d.Journal.(toolrun.Drafts)
	for _, late := range []turnkeeper.OutputPart{{}, {FirstByte: int64(len(longText)), FirstChar: int64(utf8.RuneCountInString(longText))}} {
		late.Output, late.Text = "o", "late"
		isIt(h, "a late part", drafts.WriteDraft(h.Context(), late), nil)
	}
	isIt(h, "a late drop", drafts.DropDraft(h.Context(), "o"), nil)
	h.Sweep()
	d.reads("o", longText)
}

func neverSeen(h *house) {
	d := h.planned(turnkeeper.EffectNone)
	d.draft("lost", longText)
	d.draft("dropped", longText)
	isIt(h, "a drop", d.Journal.(toolrun.Drafts).DropDraft(h.Context(), "dropped"), nil)
	after := h.again(d)
	isIt(h, "the lost worker's result", d.answerWith(key(1, 1), drafted("lost", longText)), turnkeeper.ErrFenced)
	h.Sweep()
	d.draft("lost", "from beyond") // its worker has not noticed yet
	for _, id := range []turnkeeper.OutputID{"lost", "dropped"} {
		isIt(h, "another's parts as a result", after.answerWith(key(1, 1), drafted(id, longText)), turnkeeper.ErrJournalMoved)
		after.unseen(id)
	}
	after.draft("o", longText)
	isIt(h, "the result", after.answerWith(key(1, 1), drafted("o", longText)), nil)
	after.reads("o", longText)
}

func partTwice(h *house) {
	d := h.planned(turnkeeper.EffectNone)
	drafts := d.Journal.(toolrun.Drafts)
	for _, done := range []bool{true, false} {
		h.CutNext(done)
		id := turnkeeper.OutputID(map[bool]string{true: "done", false: "not"}[done])
		isIt(h, "the part", drafts.WriteDraft(h.Context(), turnkeeper.OutputPart{Output: id, Text: "first, "}), nil)
		isIt(h, "the next part", drafts.WriteDraft(h.Context(), turnkeeper.OutputPart{Output: id, FirstByte: 7, FirstChar: 7, Text: "second"}), nil)
	}
	isIt(h, "the result", d.answerWith(key(1, 1), drafted("done", "first, second")), nil)
	d.reads("done", "first, second")
}
