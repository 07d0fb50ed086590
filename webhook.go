package turnkeeper

import (
	"fmt"
)

// WebhookID names a reply to a receiver: the same at every attempt.
func (id ReplyID) WebhookID() string { return fmt.Sprintf("reply_%d", id) }
