package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/oauth2"

	"turnkeeper/internal/redact"
	"turnkeeper/tools/program"
)

const hush = "Q7wZ9kLmX2vB4nTpR8sY"

// TestNoPartOfASecretRemainsAtACut lets a server say a secret wherever its text is cut, at each position around the
// cut: no part of the secret may show.
func TestNoPartOfASecretRemainsAtACut(t *testing.T) {
	s := Server{Name: "s", OAuth: &OAuth{Issuer: "https://other.example"}, Mask: redact.New([]string{hush}).Part}
	for name, c := range map[string]struct {
		cut   int
		shows func(t *testing.T, text string) string
	}{
		"progress": {maxNote, func(_ *testing.T, text string) string {
			return s.progressText(&sdk.ProgressNotificationParams{Message: text})
		}},
		"an error of the protocol": {maxSaid, func(_ *testing.T, text string) string {
			return s.protocolError(&jsonrpc.Error{Message: text}, false).Error()
		}},
		"a refusal": {maxSaid, func(_ *testing.T, text string) string { return s.said(&jsonrpc.Error{Message: text}) }},
		"an answer that is too large": {maxNote, func(_ *testing.T, text string) string {
			return s.tooLargeError(tooLarge + ": " + text).Error()
		}},
		"a list that is too large": {maxNote, func(_ *testing.T, text string) string {
			return listError(s, &jsonrpc.Error{Code: codeTooLarge, Message: tooLarge + ": it has " + text}).Error()
		}},
		"a form": {maxQuestion, func(_ *testing.T, text string) string {
			f, _ := s.formOf(&sdk.ElicitParams{Message: text})
			return f.message
		}},
		"a schema": {maxSaid, func(_ *testing.T, text string) string {
			_, fault := s.formOf(&sdk.ElicitParams{RequestedSchema: map[string]any{"type": "object", "$ref": text}})
			return fault
		}},
		"the id of a form": {maxNote, func(_ *testing.T, text string) string {
			return asked(s, map[string]form{text: {"?", map[string]any{}}, "other": {"?", map[string]any{}}})
		}},
		"two forms": {2 * maxQuestion, func(_ *testing.T, text string) string {
			return asked(s, map[string]form{"a": {text, map[string]any{}}, "b": {"?", map[string]any{}}})
		}},
		"an authorization server": {maxNote, func(_ *testing.T, text string) string {
			_, err := s.chosenIssuer([]string{text})
			return err.Error()
		}},
		"a token that is refused": {maxNote, func(_ *testing.T, text string) string {
			return s.askError(&oauth2.RetrieveError{Response: &http.Response{StatusCode: http.StatusBadRequest},
				ErrorDescription: text}).Error()
		}},
		"the reason of a refused token": {maxScope, func(_ *testing.T, text string) string {
			return s.askError(&oauth2.RetrieveError{Response: &http.Response{StatusCode: http.StatusBadRequest},
				ErrorCode: text}).Error()
		}},
		"a login that is refused": {maxNote, func(t *testing.T, text string) string {
			return refusedLogin(t, s, url.Values{"error": {"no"}, "error_description": {text}})
		}},
		"the reason of a refused login": {maxScope, func(t *testing.T, text string) string {
			return refusedLogin(t, s, url.Values{"error": {text}})
		}},
		"the end of a program's complaints": {-maxTail, func(_ *testing.T, text string) string {
			c := &stdio{server: s}
			for len(text) > 0 {
				n := min(len(text), 700)
				c.keep([]byte(text[:n]))
				text = text[n:]
			}
			return c.lastWords()
		}},
		"a line of a program's complaints": {maxLogLine, func(t *testing.T, text string) string {
			return complaints(t, s, text)
		}},
		"the rest of a line that is far too long": {maxLogLine + redact.Margin, func(t *testing.T, text string) string {
			return complaints(t, s, text)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			const size = 20_000
			for before := 1; before < len(hush); before++ { // the bytes of the secret before the cut
				at := c.cut - before
				if c.cut < 0 {
					at += size
				}
				shown := c.shows(t, strings.Repeat(".", at)+hush+strings.Repeat(".", size-at-len(hush)))
				if !strings.Contains(shown, "....") {
					t.Fatalf("it shows %.300q", shown)
				}
				for i := range len(hush) - 3 {
					if strings.Contains(shown, hush[i:i+4]) {
						t.Fatalf("with the secret at %d, %q of it remains", at, hush[i:i+4])
					}
				}
			}
		})
	}
}

// asked returns the text of the question that a person is shown.
func asked(s Server, forms map[string]form) string {
	return (&session{server: s}).inputRequest("", nil, forms, nil).Error()
}

// refusedLogin returns the error of a login whose redirect back says this.
func refusedLogin(t *testing.T, s Server, said url.Values) string {
	back := func(context.Context, string) (*url.URL, error) { return &url.URL{RawQuery: said.Encode()}, nil }
	v := &visitor{server: s, person: Person{Visit: back}}
	_, err := v.visit(t.Context(), &auth.AuthorizationArgs{URL: "https://login.example"})
	return err.Error()
}

// complaints returns what is logged of the standard error of a program.
func complaints(t *testing.T, s Server, text string) string {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, failed := w.WriteString(text + "\nnext")
		if err := errors.Join(failed, w.Close()); err != nil {
			t.Error(err)
		}
	}()
	core, logs := observer.New(zap.DebugLevel)
	(&stdio{server: s, log: zap.New(core), process: &program.Process{Stderr: r}}).readErrors()
	if n := logs.Len(); n != 2 {
		t.Errorf("%d lines were logged", n)
	}
	said := ""
	for _, entry := range logs.All() {
		said += fmt.Sprint(entry.ContextMap()) + "\n"
	}
	return said
}
