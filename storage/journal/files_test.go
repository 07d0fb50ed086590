package journal_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"turnkeeper/policy"
	"turnkeeper/storage/journal"
)

// TestLabelsOfFiles writes files in turn, and checks the labels of each and of their folders.
func TestLabelsOfFiles(t *testing.T) {
	files := journal.NewFiles(newEnv(t).Store.DB)
	private, untrusted := policy.Mark{Label: policy.Private, Source: "a mail"}, policy.Mark{Label: policy.Untrusted, Source: "a page"}
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
	full := errors.New("disk full")
	during := func(path string, want ...policy.Label) func() error {
		return func() error { wants(path, want...); return nil }
	}
	for _, step := range []struct {
		labels []policy.Mark
		write  func() error
		after  []policy.Label
	}{
		{nil, during("/r/a.txt"), nil},
		{[]policy.Mark{private}, during("/r/a.txt", policy.Private), []policy.Label{policy.Private}},
		{[]policy.Mark{untrusted, untrusted}, during("/r/a.txt", policy.Private, policy.Untrusted), []policy.Label{policy.Untrusted}},
		{nil, during("/r/a.txt", policy.Untrusted), nil},
		{[]policy.Mark{private}, during("/r/a.txt", policy.Private), []policy.Label{policy.Private}},
		{[]policy.Mark{untrusted}, func() error { return full }, []policy.Label{policy.Private, policy.Untrusted}},
		{[]policy.Mark{private}, during("/r/a.txt", policy.Private, policy.Untrusted), []policy.Label{policy.Private}},
	} {
		if err := files.WriteFile(t.Context(), "clerk", "/r/a.txt", step.labels, step.write); err != nil && !errors.Is(err, full) {
			t.Error(err)
		}
		wants("/r/a.txt", step.after...)
	}
	if err := files.WriteFile(t.Context(), "clerk", "/r/b_c/d", []policy.Mark{untrusted}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	wants("/r/", policy.Private, policy.Untrusted)
	wants("/r")
	wants("/r/b_c/", policy.Untrusted)
	wants("/r/b%c/")
	wants("/r/b-c/")
	wants("/", policy.Private, policy.Untrusted)
	marks, err := files.FileLabels(t.Context(), "/r/a.txt")
	if err != nil || marks[0] != private {
		t.Errorf("%+v, %v", marks, err)
	}
}

// TestWritersOfAFile lets writers of private and of other content write one file at the same time. After each round it has the label
// if the last content is private.
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
		if marks, err := files.FileLabels(t.Context(), "/r/a.txt"); err != nil || content == "secret" && len(marks) != 1 {
			t.Fatalf("round %d: %s has the labels %v, %v", round, content, marks, err)
		}
	}
}
