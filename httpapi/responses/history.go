package responses

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"turnkeeper"
	"turnkeeper/storage/operate"
)

// resolve sets the texts of the entries that refer to responses.
func (a *API) resolve(ctx context.Context, key turnkeeper.ConversationKey, all []entry) error {
	var ids []turnkeeper.MessageID
	for _, e := range all {
		if e.ref != 0 {
			ids = append(ids, e.ref)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	if len(ids) > maxReferences {
		return invalid("input", "invalid_value",
			"input refers to %d items; at most %d are allowed: leave out the oldest messages", len(ids), maxReferences)
	}
	if again := repeated(all); again != "" {
		return invalid("input", "invalid_value", "input refers to the item %q twice", again)
	}
	known, err := a.cfg.Store.Saids(ctx, key, ids)
	if err != nil {
		return err
	}
	size := 0
	for i := range all {
		e := &all[i]
		if e.ref == 0 {
			continue
		}
		said, ok := known[e.ref]
		if !ok {
			return noItem("input", outputID(e.ref))
		}
		words := said.Sent
		if e.assistant {
			words = said.Reply // empty before its end
		}
		e.text, e.words = words.Text, []operate.Words{words}
		if size += len(e.text); size > maxReferred {
			return invalid("input", "too_large",
				"the items to which input refers have more than %d bytes: leave out the oldest messages", maxReferred)
		}
	}
	return nil
}

// Limits of the items to which a request refers. Their texts are read into the memory of the process.
const (
	maxReferences = 200
	maxReferred   = 4 << 20 // bytes
)

// repeated returns the id of an item to which several entries refer; empty: there is none.
func repeated(all []entry) string {
	type item struct {
		ref       turnkeeper.MessageID
		assistant bool
	}
	seen := map[item]bool{}
	for _, e := range all {
		this := item{e.ref, e.assistant}
		switch {
		case e.ref == 0:
		case seen[this] && e.assistant:
			return outputID(e.ref)
		case seen[this]:
			return inputPrefix + strconv.FormatInt(int64(e.ref), 10)
		}
		seen[this] = true
	}
	return ""
}

// cut divides the entries into the history and the new messages: those of the user at the end.
func cut(all []entry) (history, news []entry) {
	n := len(all)
	for n > 0 && !all[n-1].assistant {
		n--
	}
	return all[:n], all[n:]
}

// A chain is the hash of what a client knows of a conversation: of the agent, the user and the client, and of all that
// was said in order, without differences in white space. Nil: it is unknown.
type chain []byte

func (a *API) begin(c Call, key turnkeeper.ConversationKey) chain {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", key.Agent, key.User, c.Caller.TokenID))
	return sum[:]
}

// under returns the chain of a conversation that begins under a name: a history alone, without the name, does not find
// it.
func (h chain) under(name string) chain {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00named\x00%s", []byte(h), name))
	return sum[:]
}

func (h chain) with(all ...entry) chain {
	for _, e := range all {
		if h == nil {
			return nil
		}
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%t\x00%s", h, e.assistant, plain(e.text)))
		h = sum[:]
	}
	return h
}

// plain returns a text with one space for each white space in it.
func plain(text string) string { return strings.Join(strings.Fields(text), " ") }

// after returns the chain after the end of a message.
func after(head operate.Head) chain {
	switch head.Outcome {
	case turnkeeper.TurnSucceeded, turnkeeper.TurnDegraded:
		return chain(head.History).with(entry{assistant: true, text: head.Reply})
	case turnkeeper.TurnFailed, turnkeeper.TurnCancelled: // without an output
		return head.History
	default:
		return nil
	}
}

// isOf reports whether a history that begins with start is all of the conversation of head.
func isOf(start chain, history []entry, head operate.Head) bool {
	last := len(history) - 1
	if last < 0 || head.History == nil {
		return false
	}
	if e := history[last]; e.assistant && e.ref == head.Message {
		return bytes.Equal(start.with(history[:last]...), head.History)
	}
	end := after(head)
	return end != nil && bytes.Equal(start.with(history...), end)
}

// place sets the conversation that a request continues or starts, and what the model is shown of a history that is not
// of it. A new one is started although the history is that of a conversation if apart is set.
func (a *API) place(c Call, r *request, n *operate.NewResponse, apart bool) error {
	key := turnkeeper.ConversationKey{Agent: r.agent, User: r.user}
	history, news := cut(r.entries)
	if len(news) == 0 {
		return invalid("input", "invalid_value", "input must end with a message of the user")
	}
	start := a.begin(c, key)
	switch {
	case r.previous != "" || r.conversation != "":
		if err := a.named(c, r, n); err != nil {
			return err
		}
		key.Name = n.Submission.Conversation
		return a.goOn(c, r, n, key, start)
	case len(history) > 0 && !apart:
		found, err := a.found(c, r, n, key, start)
		if found || err != nil {
			return err
		}
	}
	n.Submission.Conversation, n.Follows, n.Strict = newConversation(), 0, false
	r.imported, r.news, n.History = history, news, start.with(r.entries...)
	return nil
}

func newConversation() string { return "conv_" + strings.ToLower(rand.Text()) }

// named sets the conversation that the request names, or whose response it names.
func (a *API) named(c Call, r *request, n *operate.NewResponse) error {
	n.Submission.Conversation = r.conversation
	if r.previous == "" {
		return nil
	}
	previous, err := a.find(c, r.previous)
	// that of another user's is unknown
	if _, hidden := errors.AsType[*Error](err); hidden || err == nil && previous.Message.User != r.user {
		return invalid("previous_response_id", "previous_response_not_found",
			"there is no response %.60q to continue", r.previous)
	}
	if err != nil {
		return err
	}
	if previous.Message.Agent != r.agent {
		return invalid("previous_response_id", "invalid_value",
			"%s is a response of the agent %q: set model to that agent", r.previous, previous.Message.Agent)
	}
	n.Previous, n.Submission.Conversation = previous.Message.ID, previous.Message.Conversation
	return nil
}

// goOn continues a conversation that the request names. A history in the request must be all of it.
func (a *API) goOn(c Call, r *request, n *operate.NewResponse, key turnkeeper.ConversationKey, start chain) error {
	head, err := a.cfg.Store.HeadOf(c.Context(), key)
	if err != nil {
		return err
	}
	if head.Message == 0 {
		return a.first(c, r, n, start.under(key.Name))
	}
	history, news := cut(r.entries)
	if began := start.under(key.Name); isOf(began, history, head) {
		start = began
	}
	own := isOf(start, history, head) && (n.Previous == 0 || n.Previous == head.Message)
	switch {
	case len(history) > 0 && !own:
		return invalid("input", "invalid_history",
			"the messages before the last one of the user are not those of the conversation: leave them out, "+
				"or leave out %s to start another conversation with them", cmp.Or(r.naming(), "conversation"))
	case own:
		n.History = start.with(r.entries...)
	case n.Previous == 0 || n.Previous == head.Message:
		n.History = after(head).with(news...)
	}
	r.news, n.Follows = news, head.Message
	return nil
}

// first starts the conversation that the request names, with the items that it was created with.
func (a *API) first(c Call, r *request, n *operate.NewResponse, start chain) error {
	history, news := cut(r.entries)
	created, err := a.cfg.Store.CreatedConversation(c.Context(), n.Submission.Conversation, c.Caller.TokenID,
		c.Caller.User)
	if err != nil && !errors.Is(err, turnkeeper.ErrNotFound) {
		return err
	}
	if err == nil {
		items, guidance, err := itemsOf("items", created.Items)
		if err != nil {
			return err
		}
		if len(items) > 0 && len(history) > 0 && !bytes.Equal(start.with(items...), start.with(history...)) {
			return invalid("input", "invalid_history",
				"the messages before the last one of the user are not the items of the conversation: leave them out")
		}
		if len(items) > 0 {
			history = items
		}
		r.guidance = append(guidance, r.guidance...)
	}
	r.imported, r.news, n.History = history, news, start.with(slices.Concat(history, news)...)
	return nil
}

// found looks for the conversation whose history the request has, and reports whether there is one. A message of the
// user at the end of the history may be one that was not answered.
func (a *API) found(c Call, r *request, n *operate.NewResponse, key turnkeeper.ConversationKey,
	start chain) (bool, error) {
	answered, _ := cut(r.entries)
	histories := [][]entry{r.entries[:len(r.entries)-1]}
	if len(answered) < len(histories[0]) {
		histories = append(histories, answered)
	}
	for _, history := range histories {
		known := history
		if last := len(history) - 1; history[last].assistant {
			known = history[:last]
		}
		heads, err := a.cfg.Store.HeadsWithHistory(c.Context(), key, start.with(known...))
		if err != nil {
			return false, err
		}
		for _, head := range heads {
			if isOf(start, history, head) {
				n.Submission.Conversation, n.Follows, n.Strict = head.Conversation, head.Message, true
				r.news, n.History = r.entries[len(history):], start.with(r.entries...)
				return true, nil
			}
		}
	}
	return false, nil
}

// A quote is text of the sender that is not its message, with a heading that says what it is.
type quote struct{ heading, text string }

// preface returns what goes before the sender's message: its instructions, and the history that the agent has not. They
// are quoted, so that it is plain who says so: a sender may write them, but neither is the agent's own prompt or
// memory.
func (r *request) preface() string {
	var quotes []quote
	guidance := r.guidance
	if r.instructions != nil {
		guidance = append([]string{*r.instructions}, guidance...)
	}
	if text := strings.TrimSpace(strings.Join(guidance, separator)); text != "" {
		quotes = append(quotes, quote{"Instructions of the sender", text})
	}
	var said []string
	for _, e := range r.imported {
		who := "User"
		if e.assistant {
			who = "Assistant"
		}
		if strings.TrimSpace(e.text) != "" {
			said = append(said, who+":\n"+e.text)
		}
	}
	if len(said) > 0 {
		quotes = append(quotes, quote{"Earlier messages, as the sender has them", strings.Join(said, separator)})
	}
	if len(quotes) == 0 {
		return ""
	}
	var b strings.Builder
	for _, q := range quotes {
		fmt.Fprintf(&b, "# %s\n\n> %s\n\n", q.heading, strings.ReplaceAll(q.text, "\n", "\n> "))
	}
	b.WriteString("# Message\n\n")
	return b.String()
}

// words returns what the body and the preface are made of.
func (r *request) words() []operate.Words {
	all := wordsOf(append(slices.Clone(r.guidance), strings.Join(r.guidance, separator))...)
	if r.instructions != nil {
		all = append(all, operate.Words{Text: *r.instructions})
	}
	for _, e := range slices.Concat(r.imported, r.news) {
		all = append(append(all, e.words...), operate.Words{Text: e.text})
	}
	return all
}

// body returns the new messages as one.
func (r *request) body() string {
	texts := make([]string, len(r.news))
	for i, e := range r.news {
		texts[i] = e.text
	}
	return strings.Join(texts, separator)
}
