package simulation_test

import (
	"time"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
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
	outages                        []outage
}

// An outage is a time in which the model's provider is away, counted from the world's
// beginning.
type outage struct {
	from, until time.Duration
	class       inference.Class
}

// newOutages draws from an actor of its own, so that worlds are what they would be without.
func (w *world) newOutages(length time.Duration) (all []outage) {
	a := w.actor(nil, kindChaos, 2)
	for range a.IntN(4) {
		from := a.between(0, length)
		all = append(all, outage{
			from: from, until: from + a.between(time.Second, 40*time.Minute),
			class: []inference.Class{inference.ClassOverloaded, inference.ClassAuth, inference.ClassTransport, inference.ClassQuota}[a.IntN(4)],
		})
	}
	return all
}

// modelAway is the fault of the model's provider at present; empty: it has none.
func (w *world) modelAway() inference.Class {
	now := time.Since(w.began)
	for _, o := range w.profile.outages {
		if now >= o.from && now < o.until && !w.isCalm() {
			return o.class
		}
	}
	return ""
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
	p.outages = w.newOutages(p.length)
	return p
}

// givenUp is longer than any world lasts: no message may fail by the model's provider.
const givenUp = 365 * 24 * time.Hour

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
			Models: d.Chain(simulatedModel), GiveUpAfter: givenUp,
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
