package journal_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"turnkeeper"
	"turnkeeper/policy"
	"turnkeeper/storage/journal"
	"turnkeeper/storage/storagetest"
)

// TestLabelsOfFiles writes files in turn, and checks the labels of each and of their folders. A note has the name of a
// file.
func TestLabelsOfFiles(t *testing.T) {
	h := newEnv(t)
	files := journal.NewFiles(h.Store.DB)
	private, untrusted := policy.Mark{Label: policy.Private, Source: "a mail"}, policy.Mark{Label: policy.Untrusted,
		Source: "a page"}
	wants := func(path string, want ...policy.Label) {
		t.Helper()
		marks, err := files.FileLabels(t.Context(), path)
		got := []policy.Label{}
		for _, m := range marks {
			got = append(got, m.Label)
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, %v, want %v", path, got, err, want)
		}
	}
	if err := h.WriteNote(t.Context(), turnkeeper.ConversationKey{Agent: "clerk"}, "/r/a.txt", "text",
		[]policy.Mark{private}); err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk full")
	during := func(path string, want ...policy.Label) func() error {
		return func() error { wants(path, want...); return nil }
	}
	for _, step := range []struct {
		labels []policy.Mark
		write  func() error
		after  []policy.Label
	}{
		{nil, func() error {
			if n := storagetest.One[int](h, "select count(*) from turnkeeper.files"); n != 0 {
				t.Errorf("%d files while one without labels is written", n)
			}
			return nil
		}, nil},
		{[]policy.Mark{private}, during("/r/a.txt", policy.Private), []policy.Label{policy.Private}},
		{[]policy.Mark{untrusted, untrusted}, during("/r/a.txt", policy.Private, policy.Untrusted),
			[]policy.Label{policy.Untrusted}},
		{nil, during("/r/a.txt", policy.Untrusted), nil},
		{[]policy.Mark{private}, during("/r/a.txt", policy.Private), []policy.Label{policy.Private}},
		{[]policy.Mark{untrusted}, func() error { return full }, []policy.Label{policy.Private, policy.Untrusted}},
		{[]policy.Mark{private}, during("/r/a.txt", policy.Private, policy.Untrusted), []policy.Label{policy.Private}},
	} {
		if err := files.WriteFile(t.Context(), "clerk", "/r/a.txt", step.labels, step.write); err != nil &&
			!errors.Is(err, full) {
			t.Error(err)
		}
		wants("/r/a.txt", step.after...)
	}
	if err := files.WriteFile(t.Context(), "clerk", "/r/b_c/d", []policy.Mark{untrusted}, func() error {
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	wants("/r/", policy.Private, policy.Untrusted)
	wants("/r")
	wants("/r/b_c/", policy.Untrusted)
	wants("/r/b%c/")
	wants("/r/b-c/")
	wants("/", policy.Private, policy.Untrusted)
	letter := policy.Mark{Label: policy.Private, Source: "a letter"}
	for _, mark := range []policy.Mark{letter, private} {
		if err := files.WriteFile(t.Context(), "clerk", "/r/a.txt", []policy.Mark{mark},
			during("/r/a.txt", policy.Private)); err != nil {
			t.Fatal(err)
		}
		if marks, err := files.FileLabels(t.Context(), "/r/a.txt"); err != nil || len(marks) != 1 || marks[0] != mark {
			t.Errorf("%+v, %v, want %v", marks, err, mark)
		}
	}
	known := func() string {
		return storagetest.One[string](h, "select string_agg(path, ' ' order by path) from turnkeeper.files")
	}
	if got := known(); got != "/r/a.txt /r/b_c/d" {
		t.Errorf("files with labels: %s", got)
	}
	if err := files.WriteFile(t.Context(), "clerk", "/r/a.txt", nil, during("/r/a.txt", policy.Private)); err != nil {
		t.Error(err)
	}
	if got := known(); got != "/r/b_c/d" {
		t.Errorf("files with labels: %s", got)
	}
	if _, labels, _, err := h.ReadNote(t.Context(), turnkeeper.ConversationKey{Agent: "clerk"},
		"/r/a.txt"); err != nil || len(labels) != 1 {
		t.Errorf("the note has the labels %v, %v", labels, err)
	}
}

// TestWritersOfOtherFiles writes files while another one is written: with labels, and without.
func TestWritersOfOtherFiles(t *testing.T) {
	files := journal.NewFiles(newEnv(t).Store.DB)
	private := []policy.Mark{{Label: policy.Private, Source: "a mail"}}
	nothing := func() error { return nil }
	if err := files.WriteFile(t.Context(), "clerk", "/r/labelled", private, nothing); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), storagetest.Patience)
	defer stop()
	err := files.WriteFile(ctx, "clerk", "/r/a", private, func() error {
		return errors.Join(
			files.WriteFile(ctx, "clerk", "/r/labelled", private, nothing), files.WriteFile(ctx, "clerk", "/r/b",
				private, nothing),
			files.WriteFile(ctx, "clerk", "/r/labelled", nil, nothing), files.WriteFile(ctx, "clerk", "/r/c",
				nil, nothing),
		)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestWritersOfAFile lets writers of private and of other content write one file at the same time. After each round it
// has the label if the last content is private.
func TestWritersOfAFile(t *testing.T) {
	files := journal.NewFiles(newEnv(t).Store.DB)
	for round := range 20 {
		var content string
		var mu sync.Mutex
		var group sync.WaitGroup
		for n := range 4 {
			labels, text := []policy.Mark(nil), "open"
			if n%2 == round%2 {
				labels, text = []policy.Mark{{Label: policy.Private, Source: "a mail"}}, "secret"
			}
			group.Go(func() {
				if err := files.WriteFile(t.Context(), "clerk", "/r/a.txt", labels, func() error {
					mu.Lock()
					defer mu.Unlock()
					content = text
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if marks, err := files.FileLabels(t.Context(), "/r/a.txt"); err != nil || content == "secret" &&
			len(marks) != 1 {
			t.Fatalf("round %d: %s has the labels %v, %v", round, content, marks, err)
		}
	}
}
