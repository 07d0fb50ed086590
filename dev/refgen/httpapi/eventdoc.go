package main

import (
	"fmt"
	"reflect"
	"strings"

	"turnkeeper/internal/views"
)

const aboutEvents = `# Events

<!-- Written by dev/refgen/httpapi from internal/views/event.go: change the table and the text there, then run go generate ./httpapi -->

Two streams show a model writing while it writes. Both are server-sent events whose data is an ` + "`Event`" + ` of the
[OpenAPI document](http-api.md), so that generated clients know each type and its fields.

| stream | scope | begins | ends |
| --- | --- | --- | --- |
| ` + "`GET /v1/messages/{id}/events`" + ` | send or read | while the message waits | after ` + "`message_closed`" + ` |
| ` + "`GET /v1/turns/{id}/events`" + ` | read | with the turn | after ` + "`turn_complete`" + ` or ` + "`turn_error`" + ` |

` + "```console" + `
$ curl -N localhost:8722/v1/messages/1/events -H "Authorization: Bearer $TOKEN"
` + "```" + `

The stream of a message goes on over all that happens to it: its wait, its turn, parking, another worker that takes the turn over, and
more turns if an attempt fails.

## Showing text

- Append ` + "`data.text`" + ` of each ` + "`block_delta`" + ` to the block ` + "`block`" + ` of the turn ` + "`turn_id`" + `. Reasoning and arguments of tools come in other fields
  (` + "`thinking`, `arguments`" + `), so they never look like text.
- ` + "`round_rollback`" + ` voids the blocks of its round since the newest ` + "`round_start`" + ` of that round: a worker was lost, or the model was asked again.
- The text of the first answer of a model in a worker's process comes whole, at its end, unless its provider says ` + "`separates_reasoning`" + `
  ([configuration.md](configuration.md)): until then nobody knows whether the model begins with reasoning that is not marked.
- ` + "`turn_start`" + ` and ` + "`tool_started`" + ` come within half a second. ` + "`round_start`" + ` comes with the first of the answer, which may take long.
- ` + "`turn_error`" + ` with ` + "`retry`" + ` voids the whole turn: the attempt failed, and another turn will try again.
- ` + "`message_closed`" + ` has the reply. Its body replaces all text that was streamed: the text of the last round is usually the same, but a reply may
  also be a text of Turnkeeper's own, be withheld, or leave out the text of earlier rounds.

## Who gets what

A token with the scope read gets every event, with all fields. A token that may only send gets the types and fields marked send below: no
arguments, results, reasoning, models and errors. It gets no text either where the agent's ` + "`reply_sink`" + ` is not ` + "`allow`" + ` ([asks.md](asks.md)), before
the reply has been sent. Names that the model made up for tools that the agent does not have are ` + "`(unknown tool)`" + `. Types and fields of
later releases are left out until somebody has decided about them. As everywhere, a token for some agents, or for one user, gets 404 for
the messages of others, and a message to a sub-agent needs the scope read.

## Resuming

The ` + "`id`" + ` of an event is the position after it: in the stream of a turn its number, in that of a message an opaque text. A client that
reconnects sends it as ` + "`Last-Event-ID`" + ` (an EventSource does so by itself) or ` + "`?after=`" + `, and gets every later event once.
` + "`message_waiting`" + ` is not stored and has no id: a client gets the reasons of the moment again. Numbers of a message's events may have gaps: what
a token may not see is left out. An id of another message is refused (400). After the last event, the answer is 204. See
[http-api.md](http-api.md#streams) for what happens when a process stops.

## Types

All events have the fields of this table. Ignore types and fields that you do not know.

`

// eventDocument returns docs/events.md.
func eventDocument() []byte {
	var b strings.Builder
	b.WriteString(aboutEvents)
	fields(&b, reflect.TypeFor[views.Event](), nil)
	for _, row := range views.EventRows {
		scope := "send, read"
		if !row.Send {
			scope = "read"
		}
		fmt.Fprintf(&b, "\n### %s\n\nScope: %s. %s\n", row.Type, scope, row.Meaning)
		if row.Data == nil {
			b.WriteString("\nIt has no data.\n")
			continue
		}
		b.WriteString("\n")
		fields(&b, reflect.TypeOf(row.Data), views.SentFields(row.Data))
	}
	return []byte(b.String())
}

// fields writes a table of the fields of a struct. sent are those that need no scope read; nil: all.
func fields(b *strings.Builder, t reflect.Type, sent map[string]bool) {
	if sent == nil {
		b.WriteString("| field | meaning |\n| --- | --- |\n")
	} else {
		b.WriteString("| field of data | scope | meaning |\n| --- | --- | --- |\n")
	}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		meaning := f.Tag.Get("doc")
		if strings.Contains(options, "omit") {
			meaning = strings.TrimPrefix(meaning+" (may be missing)", " ")
		}
		fmt.Fprintf(b, "| `%s` | ", name)
		if sent != nil {
			scope := "send, read"
			if !sent[name] {
				scope = "read"
			}
			b.WriteString(scope + " | ")
		}
		b.WriteString(meaning + " |\n")
	}
}
