package request

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"turnkeeper/storage/operate"
)

func TestWhatACallerMay(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name               string
		token              *operate.Token
		sends, sees, seesO bool
		all                bool
	}{
		{"without a token", nil, true, true, true, true},
		{"of all agents", &operate.Token{Scopes: []string{ScopeSend}}, true, true, true, true},
		{"of one agent", &operate.Token{Scopes: []string{ScopeRead, ScopeSend}, Agents: []string{"clerk"}}, true, true,
			false, false},
		{"of another agent", &operate.Token{Scopes: []string{ScopeRead}, Agents: []string{"clerks"}}, false, false,
			false, false},
		{"of no agent", &operate.Token{Agents: []string{}}, false, false, false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := Caller{test.token}
			if c.May(ScopeSend) != test.sends || c.Sees("clerk") != test.sees || c.Sees("desk") != test.seesO ||
				c.SeesAll() != test.all {
				t.Errorf("sends %v, sees clerk %v and desk %v, all %v", c.May(ScopeSend), c.Sees("clerk"),
					c.Sees("desk"), c.SeesAll())
			}
		})
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]map[bool]bool{"": {true: true, false: false}, "?f=true": {true: true,
		false: true}, "?f=false": {true: false, false: false}} {
		for byDefault, want := range want {
			c := Call{Request: httptest.NewRequest(http.MethodGet, "/"+query, nil)}
			if got, err := c.Flag("f", byDefault); err != nil || got != want {
				t.Errorf("%q, by default %v: %v, %v", query, byDefault, got, err)
			}
		}
	}
	c := Call{Request: httptest.NewRequest(http.MethodGet, "/?f=yes", nil)}
	if _, err := c.Flag("f", true); err == nil {
		t.Error("yes is read")
	}
}

// unread is a response writer whose client is gone: writes fail.
type unread struct{ http.ResponseWriter }

func (unread) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestAnswersThatAreNotRead(t *testing.T) {
	t.Parallel()
	for w, want := range map[http.ResponseWriter]error{httptest.NewRecorder(): nil,
		unread{httptest.NewRecorder()}: ErrGone} {
		c := Call{W: w}
		if err := c.Content("text/plain", []byte("x")); !errors.Is(err, want) {
			t.Errorf("content: %v, want %v", err, want)
		}
		if err := c.Respond(http.StatusOK, 1); !errors.Is(err, want) {
			t.Errorf("an answer: %v, want %v", err, want)
		}
	}
}

// TestABodyThatEndsEarlyIsRefused reads the body of a client whose connection breaks.
func TestABodyThatEndsEarlyIsRefused(t *testing.T) {
	t.Parallel()
	body := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF))
	c := Call{W: httptest.NewRecorder(), Request: httptest.NewRequest(http.MethodPost, "/", body)}
	if got, err := c.Bytes(100); err == nil {
		t.Errorf("read %q", got)
	}
}
