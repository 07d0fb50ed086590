package simulation_test

import (
	"time"

	"turnkeeper"
	"turnkeeper/agentdef"
)

// A profile is what sort of a world a seed makes: how big, how long, and what
// goes wrong how often.
type profile struct {
	length    time.Duration // of the time in which things go wrong
	processes int
	messages  int
	takeover  time.Duration
	poll      time.Duration // of the schedulers
	jobPoll   time.Duration
	drift     float64 // of the processes' clocks, at most

	kills, freezes, stalls, panics float64 // at each point
	requestsLost, answersLost      float64 // of each request
	beatsLost                      float64
	bellsLost, bellsTwice          float64
	modelFails                     float64
	disasters                      int // things that befall the whole installation
	clockSteps                     bool
	nights                         int // how often nobody works for hours
	crashes                        int // of the server, which then has forgotten who took its newest jobs
}

func (w *world) newProfile() profile {
	a := w.actor(nil, kindChaos, 1)
	p := profile{
		length: a.between(20*time.Minute, 3*time.Hour), processes: 1 + a.IntN(3), messages: 4 + a.IntN(25),
		takeover: []time.Duration{0, 15 * time.Second, 15 * time.Second, 60 * time.Second}[a.IntN(4)],
		poll:     a.between(2*time.Second, time.Minute), jobPoll: a.between(time.Second, time.Minute),
		drift: a.Float64() * 0.03, modelFails: a.Float64() * 0.3, disasters: 1 + a.IntN(8),
		clockSteps: a.chance(0.4), bellsLost: a.Float64() * 0.3, bellsTwice: a.Float64() * 0.1,
	}
	if a.chance(0.5) {
		p.nights = 1 + a.IntN(3)
	}
	// Some worlds have one sort of trouble only, and much of it.
	for _, rate := range []struct {
		of   *float64
		most float64
	}{
		{&p.kills, 0.03}, {&p.freezes, 0.01}, {&p.stalls, 0.05}, {&p.panics, 0.01},
		{&p.requestsLost, 0.1}, {&p.answersLost, 0.1}, {&p.beatsLost, 0.5},
	} {
		if a.chance(0.6) {
			*rate.of = a.Float64() * rate.most
		}
	}
	return p
}

// sources are the agents' files.
var sources = map[string]string{
	"clerk": "---\ndescription: d\nsub_agents: [desk, watch]\ntools: [look, put, fire, ask, book, send, shoot]\n---\nYou are the clerk.\n",
	"desk":  "---\ndescription: d\nlane: conversation\nsub_agents: [clerk, watch]\nmax_tree_sub_agents: 3\ntools: [look, put, fire, ask, book, send, shoot]\nmax_rounds: 5\n---\nYou are the desk.\n",
	"watch": "---\ndescription: d\ntools: [look, put, fire, ask, book, send, shoot]\nschedule: {cron: \"@every 17m\"}\n---\nYou are the watch.\n",
}

var agentNames = []string{"clerk", "desk", "watch"}

var definitions = func() []*agentdef.Definition {
	var all []*agentdef.Definition
	for _, name := range agentNames {
		d, err := agentdef.Parse(name+".md", []byte(sources[name]))
		if err != nil {
			panic(err)
		}
		all = append(all, d)
	}
	return all
}()

// agents are what a process registers. In the end nothing is scheduled any more.
func (w *world) agents() []turnkeeper.AgentRegistration {
	var all []turnkeeper.AgentRegistration
	calm := w.isCalm()
	for _, d := range definitions {
		r := turnkeeper.AgentRegistration{
			Name: d.Name, Definition: d.Source, DefinitionHash: d.Hash, LanePerConversation: d.LanePerConversation,
		}
		for _, s := range d.Schedules {
			if !calm {
				r.Schedules = append(r.Schedules, turnkeeper.Schedule{
					Agent: d.Name, Name: s.Name, Cron: s.Cron, TimeZone: s.TimeZone, Conversation: s.Conversation, Message: s.Message,
				})
			}
		}
		all = append(all, r)
	}
	return all
}
