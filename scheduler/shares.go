package scheduler

import (
	"slices"

	"turnkeeper/internal/granting"
)

// shares bounds how many turns of each agent run at once. An agent with MaxRunning has that many; any other one has
// three quarters of all slots, but at least one, while other agents wait.
type shares struct {
	running map[string]int // by agent, with the turns picked in this tick
	share   int            // of an agent without MaxRunning, while other agents wait
	full    []string       // agents that have work beyond their bound
	taken   []string       // those of full that may take slots that nobody else needs
}

// newShares returns the shares of the given number of slots. running has the agent of each slot that is taken.
func newShares(running []string, slots int) *shares {
	s := &shares{running: map[string]int{}, share: max(1, slots*3/4)}
	for _, agent := range running {
		s.running[agent]++
	}
	return s
}

// take adds to picked the candidates that their agents' bounds allow, at most limit in all, and none twice. It
// reports whether it left out work of an agent that was not full before.
func (s *shares) take(picked, ready []granting.Candidate, limit int) (_ []granting.Candidate, more bool) {
	for _, c := range ready {
		if slices.Contains(s.full, c.Agent) || slices.ContainsFunc(picked, func(p granting.Candidate) bool {
			return p.Lane == c.Lane
		}) {
			continue
		}
		if s.running[c.Agent] >= s.bound(c) {
			s.full = append(s.full, c.Agent)
			if c.MaxRunning == 0 {
				s.taken = append(s.taken, c.Agent)
			}
			more = true
			continue
		}
		if len(picked) == limit {
			return picked, false
		}
		s.running[c.Agent]++
		picked = append(picked, c)
	}
	return picked, more
}

func (s *shares) bound(c granting.Candidate) int {
	if c.MaxRunning > 0 {
		return c.MaxRunning
	}
	return s.share
}

// lift lets agents without MaxRunning take the slots that no other agent needs. It reports whether any of them has
// work beyond its share.
func (s *shares) lift() bool {
	if len(s.taken) == 0 {
		return false
	}
	s.full = slices.DeleteFunc(s.full, func(agent string) bool { return slices.Contains(s.taken, agent) })
	s.taken, s.share = nil, int(^uint(0)>>1)
	return true
}
