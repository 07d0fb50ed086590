package bench

import (
	"slices"
	"time"
)

// Format names the form of a Report as JSON.
const Format = "turnkeeper bench 3"

// A Report holds the results of a run.
type Report struct {
	Format         string        `json:"format"` // Format
	CPUs           int           `json:"cpus"`
	Postgres       string        `json:"postgres"` // version
	FSync          string        `json:"fsync"`    // the server's setting
	Flush          time.Duration `json:"flush_ns"` // median time of a flush of one page to this disk
	FlushDelay     time.Duration `json:"flush_delay_ns"`
	CPUFrom        string        `json:"cpu_from"`        // empty: CPU time and memory are not measured
	StatementsFrom string        `json:"statements_from"` // empty: statements and blocks are not counted
	Figures        []Figure      `json:"figures"`
	Series         []Series      `json:"series,omitempty"`
	Grants         *Grants       `json:"grants,omitempty"`      // nil: not measured
	Retention      *Retention    `json:"retention,omitempty"`   // nil: not measured
	Idle           *IdleWorker   `json:"idle_worker,omitempty"` // nil: not measured
	Targets        []Target      `json:"targets"`               // those that this run can judge
	Took           time.Duration `json:"took_ns"`
}

// The systems that are compared.
const (
	Turnkeeper = "turnkeeper"
	Stepwise   = "turnkeeper, step" // with durability step: each step on record before the next one
	River      = "river job"
	Floor      = "floor"
	EndFloor   = "floor, one commit"
)

// The sections of a report: what was done to the systems.
const (
	SectionIdle      = "idle"              // one turn after a pause
	SectionLanes     = "throughput"        // lanes that are always busy
	SectionWatched   = "watched"           // streamed turns, with and without watchers
	SectionRetention = "retention"         // with and without a purge of old turns
	SectionHistory   = "long conversation" // with and without past turns
)

// A Figure holds what one system did in one section. A zero was not measured.
type Figure struct {
	Section      string  `json:"section"`
	System       string  `json:"system"`
	Case         string  `json:"case,omitempty"` // distinguishes figures of a system in a section
	Lanes        int     `json:"lanes"`
	Turns        int     `json:"turns"` // measured, after the warm-up
	TurnsPerS    float64 `json:"turns_per_second"`
	Reply        Latency `json:"reply"`
	FirstRequest Latency `json:"first_request,omitzero"` // the model's, since the message was sent
	// of all requests of a turn, and the share of them with which the request before in the conversation began
	RequestBytes float64            `json:"request_bytes_per_turn,omitzero"`
	Repeated     float64            `json:"requests_repeated,omitzero"`   // from 0 to 1
	CPU          map[string]float64 `json:"cpu_ms_per_turn,omitempty"`    // by process, and their "total"
	Transactions float64            `json:"write_transactions_per_turn"`  // savepoints included
	Statements   float64            `json:"statements_per_turn,omitzero"` // sent by clients
	WAL          float64            `json:"wal_bytes_per_turn"`           //
	// updated and deleted row versions, warm-up included
	DeadTuples float64 `json:"dead_tuples_per_turn,omitzero"`
	// read by statements, in memory or from disk
	Blocks float64 `json:"blocks_per_turn,omitzero"`
	// of these, not found in the server's memory
	BlocksRead float64 `json:"blocks_read_per_turn,omitzero"`
	// of the process that runs the turns, a second after the last
	Resting *Memory `json:"resting_memory,omitempty"`
	Peak    *Memory `json:"peak_memory,omitempty"`            // of the same, while turns ran
	Events  int     `json:"events_for_each_watcher,omitzero"` //
}

// A Latency holds percentiles of a duration.
type Latency struct {
	P50 time.Duration `json:"p50_ns"`
	P95 time.Duration `json:"p95_ns"`
	P99 time.Duration `json:"p99_ns"`
}

func latencyOf(all []time.Duration) Latency {
	if len(all) == 0 {
		return Latency{}
	}
	slices.Sort(all)
	at := func(percent int) time.Duration { return all[(len(all)-1)*percent/100] }
	return Latency{P50: at(50), P95: at(95), P99: at(99)}
}

// An IdleWorker is what a worker without work uses.
type IdleWorker struct {
	Over     time.Duration `json:"over_ns"`                    // how long it was measured
	Worker   float64       `json:"worker_cpu_ms_per_second"`   // the process
	Backends float64       `json:"backends_cpu_ms_per_second"` // its sessions on the server
}

// section returns the figures of a section, in order.
func (r *Report) section(name string) (figures []Figure) {
	for _, f := range r.Figures {
		if f.Section == name {
			figures = append(figures, f)
		}
	}
	return figures
}

// figure returns the figure of a system without a case; nil: there is none.
func (r *Report) figure(section, system string, lanes int) *Figure {
	for i := range r.Figures {
		if f := &r.Figures[i]; f.Section == section && f.System == system && f.Lanes == lanes && f.Case == "" {
			return f
		}
	}
	return nil
}
