package turnkeeper

import (
	"fmt"
	"strings"
	"unicode"
)

// A ConversationKey identifies a conversation. Its user is part of it: two users never share a
// conversation, even if its name is the same.
type ConversationKey struct {
	Agent string
	User  string // empty: no user's
	Name  string
}

var laneUser = strings.NewReplacer("%", "%25", "/", "%2F")

// Lane returns the conversation's own lane: "AGENT/NAME", or "AGENT@USER/NAME" with a user, in whose name
// "%" and "/" are written %25 and %2F. No two keys have one lane. It is the same rule as the function
// lane_of in SQL.
func (k ConversationKey) Lane() Lane {
	if k.User == "" {
		return Lane(k.Agent + "/" + k.Name)
	}
	return Lane(k.Agent + "@" + laneUser.Replace(k.User) + "/" + k.Name)
}

// CheckUser returns an error unless the user's name is UTF-8 of at most MaxKeyLength bytes without control characters.
// It may be empty. It is the same rule as the function user_may_be in SQL.
func (k ConversationKey) CheckUser() error {
	switch name := k.User; {
	case len(name) > MaxKeyLength:
		return fmt.Errorf("the user's name is longer than %d bytes", MaxKeyLength)
	case strings.ToValidUTF8(name, "") != name:
		return fmt.Errorf("the user's name is not valid UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("the user's name has a control character")
	}
	return nil
}
