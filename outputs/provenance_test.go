package outputs_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"turnkeeper/outputs"
)

func chunksOf(t *testing.T, text string, tokens, window int64) (all []outputs.Chunk) {
	t.Helper()
	for chunk, err := range outputs.Chunks(t.Context(), outputs.Text(text), tokens, window) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, chunk)
	}
	return all
}

func TestChunksCoverTheText(t *testing.T) {
	for name, text := range scripts {
		t.Run(name, func(t *testing.T) {
			chars := int64(utf8.RuneCountInString(text))
			all := chunksOf(t, text, chars/3, 400) // 600 characters a chunk
			covered := int64(0)
			for i, c := range all {
				if c.Index != i || c.Total != len(all) || utf8.RuneCountInString(c.Text) > 605 {
					t.Fatalf("chunk %d of %d has %d characters", c.Index, c.Total, utf8.RuneCountInString(c.Text))
				}
				if c.StartChar > covered || i > 0 && i < len(all)-1 && covered-c.StartChar != 30 {
					t.Fatalf("chunk %d begins at %d, the text is read up to %d", i, c.StartChar, covered)
				}
				if !strings.HasPrefix(text[c.StartByte:], c.Text) {
					t.Fatalf("chunk %d does not stand at byte %d", i, c.StartByte)
				}
				covered = c.StartChar + int64(utf8.RuneCountInString(c.Text))
			}
			if covered != chars {
				t.Errorf("the chunks end at %d of %d", covered, chars)
			}
		})
	}
	if all := chunksOf(t, "short", 2, 100_000); len(all) != 1 || all[0].Text != "short" {
		t.Errorf("%+v", all)
	}
	if all := chunksOf(t, "", 0, 100); len(all) != 1 {
		t.Errorf("an empty text: %+v", all)
	}
}

func TestLocate(t *testing.T) {
	chunk := outputs.Chunk{Index: 3, StartChar: 100, StartByte: 150, Text: "日本 is far, 日本 is near. "}
	found := outputs.Locate(chunk, []string{"日本", " 日本 is near.\n", "Japan is far", "", "日本", "日本", "is  far"})
	want := []outputs.Snippet{
		{Text: "日本", StartChar: 100, EndChar: 102, StartByte: 150, EndByte: 156, ChunkIndex: 3, SHA256: sum("日本")},
		{Text: "日本 is near.", StartChar: 111, EndChar: 122, StartByte: 165, EndByte: 180, ChunkIndex: 3,
			SHA256: sum("日本 is near.")},
		{Text: "日本", StartChar: 111, EndChar: 113, StartByte: 165, EndByte: 171, ChunkIndex: 3, SHA256: sum("日本")},
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestMergeOverlappingAndNeighbouringSnippets(t *testing.T) {
	text := "aé日😀bcdefgh"
	at := func(from, to int) outputs.Snippet {
		chars := []rune(text)
		chunk := outputs.Chunk{Index: from, StartChar: int64(from), StartByte: int64(len(string(chars[:from]))),
			Text: string(chars[from:])}
		return outputs.Locate(chunk, []string{string(chars[from:to])})[0]
	}
	for name, c := range map[string]struct{ snippets, want []outputs.Snippet }{
		"none":             {nil, nil},
		"apart":            {[]outputs.Snippet{at(5, 6), at(0, 2)}, []outputs.Snippet{at(0, 2), at(5, 6)}},
		"twice":            {[]outputs.Snippet{at(1, 4), at(1, 4)}, []outputs.Snippet{at(1, 4)}},
		"one in another":   {[]outputs.Snippet{at(2, 3), at(1, 6)}, []outputs.Snippet{at(1, 6)}},
		"overlapping":      {[]outputs.Snippet{at(1, 4), at(2, 6)}, []outputs.Snippet{at(1, 6)}},
		"touching":         {[]outputs.Snippet{at(3, 5), at(0, 3)}, []outputs.Snippet{at(0, 5)}},
		"a chain of three": {[]outputs.Snippet{at(4, 8), at(0, 2), at(2, 5)}, []outputs.Snippet{at(0, 8)}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, outputs.Merge(c.snippets)); diff != "" && len(c.want)+
				len(outputs.Merge(c.snippets)) > 0 {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// For any claims of a model, the snippets are passages of the text with correct positions.
func FuzzProvenance(f *testing.F) {
	f.Add("one two three two", "two", "three tw", int64(4))
	f.Add(scripts["emoji"][:80], "👩", "\u200d", int64(7))
	f.Fuzz(func(t *testing.T, text, one, two string, window int64) {
		text = outputs.Clean(text)
		if window < 1 || window > 1000 {
			return
		}
		var found []outputs.Snippet
		for _, chunk := range chunksOf(t, text, int64(utf8.RuneCountInString(text)), window) {
			found = append(found, outputs.Locate(chunk, []string{one, two, one})...)
		}
		end := int64(-1)
		for _, s := range outputs.Merge(found) {
			if text[s.StartByte:s.EndByte] != s.Text || s.SHA256 != sum(s.Text) ||
				int64(utf8.RuneCountInString(text[:s.StartByte])) != s.StartChar || s.EndChar-s.StartChar != int64(
				utf8.RuneCountInString(s.Text)) {
				t.Fatalf("%+v does not stand in %q", s, text)
			}
			if s.StartByte <= end {
				t.Fatalf("%+v begins before the one before it ends", s)
			}
			end = s.EndByte
		}
	})
}
