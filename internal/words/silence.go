package words

import (
	"fmt"
	"time"

	"turnkeeper"
)

// Silence says in a clause that the worker of a turn is silent or stopped. moment formats a time.
func Silence(worker turnkeeper.WorkerID, s turnkeeper.Silence, turn string, moment func(time.Time) string) string {
	who := "worker " + Clause(Brief(string(worker), 300))
	if worker == "" {
		who = "its worker"
	}
	if s.Stopped {
		who += " has stopped"
	} else {
		who += " has been silent for " + Coarse(s.For)
	}
	return fmt.Sprintf("%s; %s is taken over at %s", who, turn, moment(s.Until))
}
