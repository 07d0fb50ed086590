package builtin

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"turnkeeper"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// Limits of a note.
const (
	MaxNoteName  = 100      // characters
	MaxNoteBytes = 64 << 10 // of the text
)

// A NoteStore stores the notes of agents. The owner of a note is an agent's user; without a user, a
// conversation, whose key has no user; or the agent itself, whose key has neither user nor name. Implementations
// must be safe for concurrent use.
type NoteStore interface {
	// WriteNote creates or replaces a note and its labels, in the transaction that ctx carries.
	WriteNote(ctx context.Context, owner turnkeeper.ConversationKey, name, text string, labels []policy.Mark) error
	// ReadNote returns a note's text and labels, and whether the note exists.
	ReadNote(ctx context.Context, owner turnkeeper.ConversationKey,
		name string) (text string, labels []policy.Mark, found bool, err error)
	// ListNotes returns the owner's notes in order of name.
	ListNotes(ctx context.Context, owner turnkeeper.ConversationKey) ([]Note, error)
}

// A Note is an entry of a list of notes.
type Note struct {
	Name      string
	Chars     int // Unicode characters of its text
	UpdatedAt time.Time
	Labels    []policy.Mark
}

type noteWriteArgs struct {
	Name string `json:"name" jsonschema:"name of the note, 1 to 100 characters"`
	Text string `json:"text" jsonschema:"the whole new text of the note, at most 64 KiB"`
}

type noteReadArgs struct {
	Name string `json:"name,omitempty" jsonschema:"name of the note; when left out, the notes are listed"`
}

// NewNotes returns the tools `note_write`, which is transactional, so the note is
// written if and only if its result is recorded, and `note_read`, of effect none.
// Notes belong to the agent and the user whose conversation it is; without a user, to the
// conversation; and to the agent alone if it shares its notes.
func NewNotes(store NoteStore) []tools.Tool {
	n := notes{store: store}
	write := tools.Spec{
		Name: "note_write",
		Description: "Writes one of your own notes, which you keep from one message to the next. " +
			"It replaces what the note held. An empty text empties the note; notes are never deleted.",
		Effect:        turnkeeper.EffectOnce,
		Transactional: true,
	}
	read := tools.Spec{
		Name:        "note_read",
		Description: "Reads one of your own notes, or lists them when no name is given.",
		Effect:      turnkeeper.EffectNone,
	}
	return []tools.Tool{tools.New(write, n.write), tools.New(read, n.read)}
}

type notes struct {
	store NoteStore
}

// ownerOf returns the owner of the notes that a call writes or reads.
func ownerOf(call tools.Call) turnkeeper.ConversationKey {
	switch {
	case call.SharedNotes:
		return turnkeeper.ConversationKey{Agent: call.Agent}
	case call.User != "":
		return turnkeeper.ConversationKey{Agent: call.Agent, User: call.User}
	default:
		return turnkeeper.ConversationKey{Agent: call.Agent, Name: call.Conversation}
	}
}

func (n notes) write(ctx context.Context, call tools.Call, args noteWriteArgs) (tools.Result, error) {
	if err := checkNote(args.Name, args.Text); err != nil {
		return tools.Result{}, err
	}
	if err := n.store.WriteNote(ctx, ownerOf(call), args.Name, args.Text, call.Labels); err != nil {
		return tools.Result{}, &storeError{"the note could not be written", err}
	}
	chars := utf8.RuneCountInString(args.Text)
	return tools.Result{Text: fmt.Sprintf("Note %q written, %d characters.", args.Name, chars)}, nil
}

func (n notes) read(ctx context.Context, call tools.Call, args noteReadArgs) (tools.Result, error) {
	if args.Name == "" {
		return n.list(ctx, ownerOf(call))
	}
	text, labels, found, err := n.store.ReadNote(ctx, ownerOf(call), args.Name)
	if err != nil {
		return tools.Result{}, &storeError{"the note could not be read", err}
	}
	if !found {
		return failure(fmt.Sprintf("There is no note %q. Call note_read without a name to list the notes.", args.Name)),
			nil
	}
	return tools.Result{Text: text, Labels: labels}, nil
}

func (n notes) list(ctx context.Context, owner turnkeeper.ConversationKey) (tools.Result, error) {
	all, err := n.store.ListNotes(ctx, owner)
	if err != nil {
		return tools.Result{}, &storeError{"the notes could not be listed", err}
	}
	if len(all) == 0 {
		return tools.Result{Text: "There are no notes yet."}, nil
	}
	var b strings.Builder
	var labels []policy.Mark
	for _, note := range all {
		fmt.Fprintf(&b, "%s\t%d characters\t%s\n", note.Name, note.Chars, note.UpdatedAt.UTC().Format(time.RFC3339))
		labels = policy.Join(labels, note.Labels) // of the name too
	}
	return tools.Result{Text: strings.TrimSuffix(b.String(), "\n"), Labels: labels}, nil
}

// checkNote validates a note. A name must be one line without blanks around it, to
// keep lists of notes readable.
func checkNote(name, text string) error {
	chars := utf8.RuneCountInString(name)
	switch {
	case chars < 1 || chars > MaxNoteName:
		return fmt.Errorf("the name has %d characters; use 1 to %d", chars, MaxNoteName)
	case strings.TrimSpace(name) != name || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("the name %q has blanks around it or a control character; leave them out", name)
	case len(text) > MaxNoteBytes:
		return fmt.Errorf("the text has %d bytes; a note takes at most %d: shorten it or use several notes",
			len(text), MaxNoteBytes)
	}
	return nil
}

// A storeError wraps the store's error, which is for operators, in a text for the
// model that does not contain it.
type storeError struct {
	text  string
	cause error
}

func (e *storeError) Error() string { return e.text }
func (e *storeError) Unwrap() error { return e.cause }
