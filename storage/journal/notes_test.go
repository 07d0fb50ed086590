package journal_test

import (
	"fmt"
	"slices"
	"testing"

	"turnkeeper"
	"turnkeeper/policy"
)

// TestWhoseNotesAreRead writes notes of the same names for two agents, users and conversations. Each is read and listed
// with its own text and labels, and no others. A note of the first name has no label.
func TestWhoseNotesAreRead(t *testing.T) {
	h := newEnv(t)
	owners := []turnkeeper.ConversationKey{}
	for _, agent := range []string{"clerk", "desk"} {
		for _, owner := range []turnkeeper.ConversationKey{{}, {User: "anna"}, {User: "bert"}, {Name: "main"},
			{Name: "other"}} {
			owner.Agent = agent
			owners = append(owners, owner)
		}
	}
	names := []string{"a", "b", "c"}
	marksOf := func(owner turnkeeper.ConversationKey, name string) []policy.Mark {
		source := fmt.Sprintf("%s of %+v", name, owner)
		return []policy.Mark{{Label: policy.Private, Source: source}, {Label: policy.Untrusted,
			Source: source}}[:slices.Index(names, name)]
	}
	for _, owner := range owners {
		for _, name := range names {
			if err := h.WriteNote(t.Context(), owner, name, fmt.Sprintf("%s of %+v", name, owner),
				marksOf(owner, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, owner := range owners {
		list, err := h.ListNotes(t.Context(), owner)
		if err != nil || len(list) != len(names) {
			t.Fatalf("%+v: %+v, %v", owner, list, err)
		}
		for i, name := range names {
			text, marks, _, err := h.ReadNote(t.Context(), owner, name)
			if want := marksOf(owner, name); err != nil || text != fmt.Sprintf("%s of %+v", name, owner) ||
				!slices.Equal(marks, want) || !slices.Equal(list[i].Labels, want) || list[i].Name != name {
				t.Errorf("%s of %+v: %q, labels %v, in the list %+v, %v", name, owner, text, marks, list[i], err)
			}
		}
	}
	if _, _, found, err := h.ReadNote(t.Context(), turnkeeper.ConversationKey{Agent: "clerk", User: "carl"},
		"a"); err != nil || found {
		t.Errorf("a note of another user is found: %t, %v", found, err)
	}
}
