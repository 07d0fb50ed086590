package app_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"turnkeeper"
	"turnkeeper/storage/storagetest"
)

// agedHours are the ages of the closed messages of each class of retention, whose row has values between them.
var agedHours = map[string][3]int{
	"retention.messages": {300, 450, 600}, "retention.outputs": {5, 15, 25}, "retention.events": {25, 35, 45},
	"retention.leases": {45, 55,
		65},
}

// age inserts the closed messages of the rows of retention, each with a turn, an output, events and an ended grant, in
// the order in which they were accepted.
func (w *settingsWorld) age() {
	byAge := map[int]string{}
	for name, hours := range agedHours {
		for _, age := range hours {
			byAge[age] = byAge[age] + " " + strings.ReplaceAll(name, ".", "-")
		}
	}
	for _, age := range slices.Backward(slices.Sorted(maps.Keys(byAge))) {
		for _, agent := range strings.Fields(byAge[age]) {
			w.db.Exec(
				`with m as (insert into turnkeeper.messages (agent, conversation, lane, body, state, accepted_at, due_at, closed_at)
				values ($1, $2, $1, 'old', 'succeeded', now() - $3 * interval '1 h', now() - $3 * interval '1 h',
					now() - $3 * interval '1 h') returning *),
				t as (insert into turnkeeper.turns (message_id, attempt, agent, conversation, lane, trigger, definition_hash, state, token,
					created_at, ended_at,
					stop_reason, last_seq) select id, 1, agent, conversation, lane, 'message', repeat('a', 64), 'succeeded', $3, closed_at, closed_at,
						'none', 2
					from m returning *),
				o as (insert into turnkeeper.outputs (id, turn_id, round, ordinal, media_type, content, size_bytes, raw_bytes, chars, tokens, sha256,
					incomplete,
					description, created_at) select $1 || $2, id, 1, 1, 'text/plain', 'text', 4, 4, 4, 1, repeat('b', 64), false, '', ended_at from t),
				j as (insert into turnkeeper.journal (turn_id, n, seq, last_seq, at, types, rounds, blocks, data)
					select id, 1, 1, 2, ended_at, '{turn_start,turn_end}', '{0,0}', '{0,0}', '{"",""}' from t)
				insert into turnkeeper.ended_grants (lane, token, grant_id, turn_id, job_id, granted_at, lease_until, ended_at, outcome)
				select lane, $3, gen_random_uuid(), id, 1, ended_at, ended_at, ended_at, 'finished' from t`, agent, fmt.Sprintf("age-%d", age), age)
		}
	}
}

// kept returns the ages of a class whose rows are left, once those of the oldest are gone. A worker deletes them when
// it starts.
func kept(k talk, class, left string) string {
	find := fmt.Sprintf(
		`select coalesce(string_agg(split_part(m.conversation, '-', 2), ' ' order by m.id desc), '') from turnkeeper.messages m
		left join turnkeeper.turns t on t.message_id = m.id where m.agent = $1 and m.body = 'old' and %s`, left)
	oldest := fmt.Sprint(agedHours[class][2])
	ages := ""
	k.until(func() bool {
		ages = storagetest.One[string](k.db, find, k.agent)
		return !strings.Contains(ages, oldest)
	})
	return ages
}

// A collector receives traces by OTLP.
type collector struct {
	*httptest.Server
	mu  sync.Mutex
	got string
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.URL.Path == "/v1/traces" {
		c.got += string(body)
	}
}

func (c *collector) has(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Contains(c.got, text)
}

// newCollector serves a collector until the test ends.
func newCollector(t *testing.T, c *collector) *httptest.Server {
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return server
}

// newCollectors returns collectors that are not started. They already have addresses.
func newCollectors() (both [2]*collector) {
	for i := range both {
		both[i] = &collector{}
		both[i].Server = httptest.NewUnstartedServer(both[i])
	}
	return both
}

// collectors returns those of the two worlds. startCollectors starts them.
var collectors = sync.OnceValue(newCollectors)

// startCollectors starts both collectors until the test ends. A repeat of the test has new ones.
func startCollectors(t *testing.T) {
	for _, c := range collectors() {
		c.Start()
		t.Cleanup(c.Close)
	}
	t.Cleanup(func() { collectors = sync.OnceValue(newCollectors) })
}

// address returns the URL of a collector, which need not run.
func (c *collector) address() string { return "http://" + c.Listener.Addr().String() }

// metricsAt are free addresses for the metrics of the two worlds.
var metricsAt = sync.OnceValue(func() (both [2]string) {
	var listeners []net.Listener
	for i := range both {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		both[i], listeners = l.Addr().String(), append(listeners, l)
	}
	for _, l := range listeners {
		_ = l.Close()
	}
	return both
})

// metrics returns the metrics of the talk's worker, and the place of its address in metricsAt.
func (k talk) metrics() (place int, text string) {
	k.t.Helper()
	for i, address := range metricsAt() {
		answer, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			continue // the other world has ended
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if strings.Contains(string(body), string(k.ready.WorkerID)) {
			return i, string(body)
		}
	}
	k.t.Fatalf("no address has the metrics of %s", k.ready.WorkerID)
	return 0, ""
}

// traced sends a message with a mark, and one after it, and waits until a collector has the trace of the second. It
// returns the collector's place, and whether it has the mark.
func traced(k talk, mark string) (place int, marked bool) {
	k.say("do: say " + mark)
	// the bytes of a trace's id
	id := fmt.Sprintf("%-16.16s", k.ready.WorkerID[len(k.ready.WorkerID)-8:]+"/"+turnkeeper.WorkerID(k.agent))
	k.ended(k.in("after").submit(turnkeeper.Submission{Body: "do: say so",
		TraceParent: fmt.Sprintf("00-%x-00f067aa0ba902b7-01", id)}))
	k.until(func() bool {
		for i, c := range collectors() {
			if c.has(id) {
				place = i
				return true
			}
		}
		return false
	})
	return place, collectors()[place].has(mark)
}

// processRows observe settings of the process as a whole.
func processRows() []workerRow {
	places := [2]string{"first", "second"}
	retention := func(class, values, left string, want [2]string) workerRow {
		first, second, _ := strings.Cut(values, " ")
		return workerRow{name: "retention." + class, values: [2]string{first, second}, see: func(k talk) string {
			return kept(k, "retention."+class, left)
		}, want: want}
	}
	return []workerRow{
		retention("messages", "400h 500h", "true", [2]string{"300", "300 450"}),
		retention("outputs", "10h 20h",
			"exists (select from turnkeeper.outputs o where o.turn_id = t.id and o.expired_at is null)",
			[2]string{"5", "5 15"}),
		retention("events", "30h 40h", "t.events_expired_at is null", [2]string{"25", "25 35"}),
		retention("leases", "50h 60h", "exists (select from turnkeeper.ended_grants g where g.turn_id = t.id)",
			[2]string{"45", "45 55"}),
		{name: "otlp_endpoint", values: [2]string{collectors()[0].address(), collectors()[1].address()},
			see: func(k talk) string {
				place, _ := traced(k, "otlp")
				return places[place]
			}, want: places},
		{name: "telemetry_content", values: [2]string{"true", "false"}, see: func(k talk) string {
			_, marked := traced(k, "content-"+string(k.ready.WorkerID))
			return fmt.Sprint(marked)
		}, want: [2]string{"true", "false"}},
		{name: "metrics_listen", values: metricsAt(), see: func(k talk) string {
			place, _ := k.metrics()
			return places[place]
		}, want: places},
		{name: "db_pool_size", values: [2]string{"21", "23"}, see: func(k talk) string {
			_, text := k.metrics()
			return strings.Join(regexp.MustCompile(
				`turnkeeper_db_connections\{[^}]*state="max"[^}]*\} (21|23)\n`).FindStringSubmatch(text)[1:], " ")
		}, want: [2]string{"21", "23"}},
	}
}
