package request

import (
	"testing"

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
		{"of one agent", &operate.Token{Scopes: []string{ScopeRead, ScopeSend}, Agents: []string{"clerk"}}, true, true, false, false},
		{"of another agent", &operate.Token{Scopes: []string{ScopeRead}, Agents: []string{"clerks"}}, false, false, false, false},
		{"of no agent", &operate.Token{Agents: []string{}}, false, false, false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := Caller{test.token}
			if c.May(ScopeSend) != test.sends || c.Sees("clerk") != test.sees || c.Sees("desk") != test.seesO || c.SeesAll() != test.all {
				t.Errorf("sends %v, sees clerk %v and desk %v, all %v", c.May(ScopeSend), c.Sees("clerk"), c.Sees("desk"), c.SeesAll())
			}
		})
	}
}
