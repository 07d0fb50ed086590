package turnctl

import (
	"turnkeeper"
)

var turnStates = []string{
	string(turnkeeper.TurnQueued), string(turnkeeper.TurnRunning), string(turnkeeper.TurnWaiting),
	string(turnkeeper.TurnSucceeded),
	string(turnkeeper.TurnDegraded), string(turnkeeper.TurnFailed), string(turnkeeper.TurnCancelled),
}

var messageStates = []string{
	string(turnkeeper.MessageWaiting), string(turnkeeper.MessageRunning), string(turnkeeper.MessageSucceeded),
	string(turnkeeper.MessageDegraded),
	string(turnkeeper.MessageFailed), string(turnkeeper.MessageCancelled),
}
