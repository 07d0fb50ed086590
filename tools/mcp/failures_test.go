package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"turnkeeper/internal/golden"
	"turnkeeper/tools/program"
)

// TestWhatAFailedCallSays records for each way in which a call can end without a result what the model is told, whether
// the call may be sent again, and whether its session goes on. A call that may have run must never be said to have done
// nothing.
func TestWhatAFailedCallSays(t *testing.T) {
	t.Parallel()
	answers := map[string]error{
		"a broken connection":   &url.Error{Op: "Post", URL: "http://h/?secret", Err: errors.New("EOF")},
		"invalid params":        &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no such argument"},
		"invalid request":       &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "bad"},
		"method not found":      &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "which?"},
		"parse error":           &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "what?"},
		"an internal error":     &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "it broke"},
		"not read by the SDK":   &jsonrpc.Error{Code: codeRejected, Message: "not a list"},
		"too large":             &jsonrpc.Error{Code: codeTooLarge, Message: tooLarge},
		"too many values":       &jsonrpc.Error{Code: codeTooLarge, Message: tooLarge + ": it has more than 7 values"},
		"no token":              &AuthError{Why: "no token was had for it: no"},
		"nobody is logged in":   &AuthError{Why: "nobody is logged in to it", Login: "h"},
		"no login, in a string": fmt.Errorf("post: %w", &AuthError{Why: "no"}),
	}
	ways := []callError{{}, {sent: true}, {sent: true, begun: true}, {sent: true, resumed: true}, {resumed: true}}
	var said strings.Builder
	for _, name := range sortedKeys(answers) {
		statuses := []int{200}
		if name == "a broken connection" || name == "invalid params" {
			statuses = []int{0, 200, 399, 400, 404, 499, 500, 502, 503}
		}
		for _, status := range statuses {
			for _, way := range ways {
				if !way.sent && status != statuses[0] {
					continue // without a request there is no status
				}
				way.err, way.status = answers[name], status
				if !way.sent {
					way.status = 0
				}
				fmt.Fprintf(&said, "%s, %s\n%s\n", name, howFar(way), verdictOn(&way, nil))
			}
		}
	}
	golden.File(t, "testdata/failures.txt", said.String())
}

// howFar describes how far a request got.
func howFar(e callError) string {
	words := []string{fmt.Sprintf("HTTP %d", e.status)}
	for word, holds := range map[string]bool{"sent": e.sent, "begun": e.begun, "resumed": e.resumed} {
		if holds {
			words = append(words, word)
		}
	}
	return strings.Join(sortedStrings(words), ", ")
}

// verdictOn returns what becomes of a call, and of its session.
func verdictOn(err error, process *stdio) string {
	ctx, end := context.WithCancelCause(context.Background())
	end(errors.New("its program ended with exit code 7"))
	s := &session{ctx: ctx, end: end, process: process, calls: 1, limits: defaultLimits()}
	a := (&tool{host: &host{server: Server{Name: "h"}}, name: "echo"}).lost(s, err)
	fate := map[fate]string{failed: "failed", notSent: "not sent", forgotten: "forgotten", refused: "refused",
		inDoubt: "in doubt"}[a.fate]
	text := fmt.Sprintf("  %s: %v\n", fate, a.err)
	if s.retired != nil {
		text += fmt.Sprintf("  the session: %v\n", s.retired)
	}
	return text
}

// TestWhichAnswerOfAProgramIsLost checks that a program whose answer cannot be read keeps its session while its
// connection works, and that otherwise the end of the program is named.
func TestWhichAnswerOfAProgramIsLost(t *testing.T) {
	t.Parallel()
	unreadable := &callError{sent: true, err: errors.New("not a list")}
	open := func() *stdio { return &stdio{broken: make(chan struct{}), closed: make(chan struct{})} }
	if got, want := verdictOn(unreadable, open()), "  in doubt: not a list\n"; got != want {
		t.Errorf("with a connection that works:\n%swant\n%s", got, want)
	}
	broken, closed := open(), open()
	close(broken.broken)
	close(closed.closed)
	for _, process := range []*stdio{broken, closed} {
		want := "  in doubt: its program ended with exit code 7\n  the session: not a list\n"
		if got := verdictOn(unreadable, process); got != want {
			t.Errorf("with a connection that is over:\n%swant\n%s", got, want)
		}
	}
	if got, want := verdictOn(errAsksTooMuch, nil),
		"  failed: the MCP server \"h\": the server asked for input again and again\n"; got != want {
		t.Errorf("after too many requests for input:\n%swant\n%s", got, want)
	}
}

// TestWhyAProgramIsLost checks what operators and the model read when the connection to a program that still runs is
// over.
func TestWhyAProgramIsLost(t *testing.T) {
	t.Parallel()
	process, err := program.Start(program.Program{Argv: []string{"/bin/sleep", "600"}})
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.WarnLevel)
	c := &stdio{process: process, log: zap.New(core), server: Server{Name: "h"}}
	for _, over := range []error{nil, io.EOF, fmt.Errorf("read: %w", io.EOF), fmt.Errorf("call: %w",
		sdk.ErrConnectionClosed)} {
		if got := c.reason(over); got != "its program closed its output" {
			t.Errorf("after %v: %q", over, got)
		}
	}
	if got := c.reason(errors.New("a broken pipe")); got != "a broken pipe" {
		t.Errorf("after another error: %q", got)
	}
	if got := c.reason(fmt.Errorf("read: %w", errFrame)); got != "it sent a message of more than 16 MiB" {
		t.Errorf("after what it sent: %q", got)
	}
	process.Kill()
	<-process.Done()
	c.limits.Reason = time.Minute
	_ = c.reason(nil)
	if logs.Len() != 0 {
		t.Errorf("of a program that said nothing is logged %v", logs.All())
	}
	c.keep([]byte("fatal: no memory\n"))
	if got := c.reason(nil); got != "its program "+process.Ended() || process.Ended() == "" {
		t.Errorf("after its end: %q", got)
	}
	if all := logs.All(); len(all) != 1 || all[0].Message != "an MCP server ended" ||
		all[0].ContextMap()["how"] != process.Ended() ||
		all[0].ContextMap()["standard_error"] != "fatal: no memory" {
		t.Errorf("logged %v", all)
	}
}

// TestWhyToolsCouldNotBeListed checks what operators read if a server's list of tools cannot be read.
func TestWhyToolsCouldNotBeListed(t *testing.T) {
	t.Parallel()
	const large = "its list of tools is too large: at most 16 MiB are taken"
	for want, err := range map[string]error{
		"its tools could not be listed: EOF": io.EOF,
		large:                                &jsonrpc.Error{Code: codeTooLarge, Message: tooLarge},
		"it lists more than 2000 tools": &jsonrpc.Error{Code: codeTooLarge,
			Message: tooLarge + ": it has more than 2000 tools"},
	} {
		if got := listError(Server{Name: "h"}, err).Error(); got != want {
			t.Errorf("after %v: %q, want %q", err, got, want)
		}
	}
	other := &jsonrpc.Error{Code: 1, Message: tooLarge + ": it has no time"}
	if got := listError(Server{Name: "h"}, other); !errors.Is(got, other) || !strings.HasPrefix(got.Error(),
		"its tools could not be listed: ") {
		t.Errorf("after another error: %v", got)
	}
}
