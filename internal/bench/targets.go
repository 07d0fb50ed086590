package bench

import "turnkeeper/internal/words"

// A Target is a goal of the project, and how this run did.
type Target struct {
	Name  string  `json:"name"`
	Limit float64 `json:"limit"`
	Least bool    `json:"least"` // the limit is the least that is good; false: the most
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Met   bool    `json:"met"`
}

// goals are the targets that depend on the number of lanes: turns a second relative to those of the River job, and per
// turn the CPU time in ms and the write transactions.
var goals = []struct {
	lanes                    int
	river, cpu, transactions float64
}{
	{1, 0.75, 6.5, 3.1},
	{10, 0.75, 3, 1.8},
	{100, 1, 1.8, 1.4},
}

// judge lists the targets for which the report has figures.
func (r *Report) judge() {
	judge := func(name, unit string, least bool, limit, value float64) {
		r.Targets = append(r.Targets, Target{name, limit, least, value, unit,
			least == (value >= limit) || value == limit})
	}
	const atLeast, atMost = true, false
	if own, floor := r.figure(SectionIdle, Turnkeeper, 1), r.figure(SectionIdle, Floor, 1); own != nil && floor != nil {
		judge("idle: reply, relative to the floor", "×", atMost, 2, float64(own.Reply.P50)/float64(floor.Reply.P50))
	}
	for _, goal := range goals {
		own, river := r.figure(SectionLanes, Turnkeeper, goal.lanes), r.figure(SectionLanes, River, goal.lanes)
		if own == nil {
			continue
		}
		at := func(what string) string { return words.Plural(goal.lanes, "lane") + ": " + what }
		judge(at("turns/s, relative to the River job"), "×", atLeast, goal.river, own.TurnsPerS/river.TurnsPerS)
		if own.CPU != nil {
			judge(at("CPU of all processes per turn"), "ms", atMost, goal.cpu, own.CPU[total])
		}
		judge(at("write transactions per turn"), "", atMost, goal.transactions, own.Transactions)
		judge(at("WAL per turn"), "kB", atMost, 9, own.WAL/1000)
		judge(at("dead tuples per turn"), "", atMost, 4, own.DeadTuples)
		if goal.lanes == maxSlots && own.Peak != nil {
			judge(at("anonymous memory of the worker"), "MiB", atMost, 40, float64(own.Peak.Anonymous)/(1<<20))
		}
	}
	if pair := r.section(SectionHistory); len(pair) == 2 && pair[0].CPU != nil {
		relative := func(of func(cpu map[string]float64) float64) float64 { return of(pair[1].CPU) / of(pair[0].CPU) }
		judge("long conversation: CPU of the worker, relative to a new one", "×", atMost, 1.3,
			relative(func(cpu map[string]float64) float64 { return cpu["worker"] }))
		judge("long conversation: CPU of all but the model, relative to a new one", "×", atMost, 1.3,
			relative(func(cpu map[string]float64) float64 { return cpu[total] - cpu["model"] }))
	}
	if i := r.Idle; i != nil {
		judge("worker without work: CPU with its sessions per second", "ms", atMost, 4, i.Worker+i.Backends)
	}
}
