package bench

import (
	"testing"
	"time"

	"turnkeeper/storage/storagetest"
)

// Copies of a turn, and waiting messages, keep what turnctl check checks, and the next turn goes on from them.
func TestFill(t *testing.T) {
	t.Parallel()
	url := storagetest.URL(t)
	d := storagetest.Open(t, url)
	d.Register(benchAgent, true)
	conn, err := openFiller(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := copyTurns(t.Context(), conn, 1, "'none'", 0); err == nil {
		t.Error("copied a turn of an empty database")
	}
	run := func(conversation string) {
		t.Helper()
		d.Submit(benchAgent, conversation, "x")
		for _, turn := range d.Dispatch("worker-1") {
			turn.Finish(t, "done")
		}
	}
	run("first")
	for _, age := range []time.Duration{time.Hour, 0} {
		if err := copyTurns(t.Context(), conn, 6, "'long-' || i % 3", age); err != nil {
			t.Fatal(err)
		}
	}
	w := backlog{name: "waiting", messages: 20, lanes: 4, due: "now() + interval '1 day'"}
	if err := fillBacklog(t.Context(), conn, w); err != nil {
		t.Fatal(err)
	}
	if err := backOff(t.Context(), conn, w); err != nil {
		t.Fatal(err)
	}
	run("long-0")
	for sql, want := range map[string]int64{
		"select count(*) from turnkeeper.turns where state = 'succeeded'":                                14,
		"select count(*) from turnkeeper.replies":                                                        14,
		"select count(*) from turnkeeper.turns where conversation = 'long-0'":                            5,
		"select count(*) from turnkeeper.messages where closed_at < now() - interval '59 minutes'":       6,
		"select count(*) from turnkeeper.messages where state = 'waiting'":                               20,
		"select count(*) from turnkeeper.leases where not_before > now() and lane like 'bench/waiting%'": 4,
	} {
		if got := storagetest.One[int64](d, sql); got != want {
			t.Errorf("%s: %d, want %d", sql, got, want)
		}
	}
	promises, err := d.Check(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range promises {
		if len(p.Broken) > 0 {
			t.Errorf("%s: %v", p.Text, p.Broken)
		}
	}
}
