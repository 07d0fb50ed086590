package simulation_test

import (
	"time"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
)

// A profile is the size and length of a simulation, and the rates of its faults.
type profile struct {
	length    time.Duration // of the time with faults
	processes int
	messages  int
	takeover  time.Duration
	poll      time.Duration // poll interval of the schedulers
	jobPoll   time.Duration
	drift     float64 // maximum drift of the processes' clocks

	kills, freezes, stalls, panics float64 // probability at each fault point
	requestsLost, answersLost      float64 // probability for each request
	beatsLost                      float64
	doorbellsLost, doorbellsTwice  float64
	modelFails                     float64
	faults                         int // faults of the whole installation
	clockSteps                     bool
	powerCuts                      int // how often no process runs for hours
	crashes                        int // crashes of the server that lose the newest fetches of jobs
	outages                        []outage
	asks                           bool // people must approve some calls
	handOver                       bool // schedulers hand turns over to their own processes
	// some content is labelled, and people must approve calls that it may have led to
	labels bool
}

// An outage is a failure of the model's provider. Its times count from the start of the simulation.
type outage struct {
	from, until time.Duration
	class       inference.Class
}

// newOutages draws from its own actor, so outages do not change the other random choices of a seed.
func (e *env) newOutages(length time.Duration) (all []outage) {
	a := e.actor(nil, kindFaults, 2)
	for range a.IntN(4) {
		from := a.between(0, length)
		all = append(all, outage{
			from: from, until: from + a.between(time.Second, 40*time.Minute),
			class: []inference.Class{inference.ClassOverloaded, inference.ClassAuth, inference.ClassTransport,
				inference.ClassQuota}[a.IntN(4)],
		})
	}
	return all
}

// modelFault returns the current failure of the model's provider, or an empty class.
func (e *env) modelFault() inference.Class {
	now := time.Since(e.began)
	for _, o := range e.profile.outages {
		if now >= o.from && now < o.until && !e.isQuiet() {
			return o.class
		}
	}
	return ""
}

func (e *env) newProfile() profile {
	a := e.actor(nil, kindFaults, 1)
	p := profile{
		length: a.between(20*time.Minute, 3*time.Hour), processes: 1 + a.IntN(3), messages: 4 + a.IntN(25),
		takeover: []time.Duration{0, 15 * time.Second, 15 * time.Second, 60 * time.Second}[a.IntN(4)],
		poll:     a.between(2*time.Second, time.Minute), jobPoll: a.between(time.Second, time.Minute),
		drift: a.Float64() * 0.03, modelFails: a.Float64() * 0.3, faults: 1 + a.IntN(8),
		clockSteps: a.chance(0.4), doorbellsLost: a.Float64() * 0.3, doorbellsTwice: a.Float64() * 0.1,
	}
	if a.chance(0.5) {
		p.powerCuts = 1 + a.IntN(3)
	}
	// Some simulations have only one kind of fault, often.
	for _, r := range []struct {
		rate *float64
		max  float64
	}{
		{&p.kills, 0.03}, {&p.freezes, 0.01}, {&p.stalls, 0.05}, {&p.panics, 0.01},
		{&p.requestsLost, 0.1}, {&p.answersLost, 0.1}, {&p.beatsLost, 0.5},
	} {
		if a.chance(0.6) {
			*r.rate = a.Float64() * r.max
		}
	}
	p.outages = e.newOutages(p.length)
	p.handOver = e.actor(nil, kindFaults, 3).chance(0.6)
	p.asks = e.actor(nil, kindFaults, 4).chance(0.4)
	p.labels = e.actor(nil, kindFaults, 5).chance(0.3)
	return p
}

// giveUpAfter is longer than any simulation: no message may fail because of the model's provider.
const giveUpAfter = 365 * 24 * time.Hour

// sources are the agents' definitions.
var sources = map[string]string{
	"clerk": "---\ndescription: d\nsub_agents: [desk, watch]\ntools: [look, put, fire, ask, book, send, shoot]\nask_timeout: 10m\n---\nYou are the clerk.\n",
	"desk":  "---\ndescription: d\nlane: conversation\nsub_agents: [clerk, watch]\nmax_tree_sub_agents: 3\ntools: [look, put, fire, ask, book, send, shoot]\nmax_rounds: 5\nask_timeout: 10m\n---\nYou are the desk.\n",
	"watch": "---\ndescription: d\ntools: [look, put, fire, ask, book, send, shoot]\nschedule: {cron: \"@every 17m\"}\nask_timeout: 10m\nwhile_asking: go_on\ndurability: step\n---\nYou are the watch.\n",
}

var agentNames = []string{"clerk", "desk", "watch"}

var definitions = definitionsOf(func(_, source string) string { return source })

// definitionsOf parses the agents' definitions, with a change of each.
func definitionsOf(change func(name, source string) string) []*agentdef.Definition {
	var all []*agentdef.Definition
	for _, name := range agentNames {
		d, err := agentdef.Parse(name+".md", []byte(change(name, sources[name])))
		if err != nil {
			panic(err)
		}
		all = append(all, d)
	}
	return all
}

// agents returns the registrations of a process. There are no schedules once faults have ended.
func (e *env) agents() []turnkeeper.AgentRegistration {
	var all []turnkeeper.AgentRegistration
	quiet := e.isQuiet()
	for _, d := range e.definitions() {
		r := turnkeeper.AgentRegistration{
			Name: d.Name, Definition: d.Source, DefinitionHash: d.Hash, LanePerConversation: d.LanePerConversation,
			Models: d.Chain(simulatedModel), GiveUpAfter: giveUpAfter,
		}
		for _, s := range d.Schedules {
			if !quiet {
				r.Schedules = append(r.Schedules, turnkeeper.Schedule{
					Agent: d.Name, Name: s.Name, Cron: s.Cron, TimeZone: s.TimeZone, Conversation: s.Conversation,
					Message: s.Message,
				})
			}
		}
		all = append(all, r)
	}
	return all
}
