package storage_test

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"turnkeeper/storage"
)

// query reads a named query from its file, its row limit filled in.
func query(t *testing.T, file, name string) string {
	t.Helper()
	text, err := os.ReadFile("queries/" + file)
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "-- name: "+name+" ")
	if !found {
		t.Fatalf("%s has no query %s", file, name)
	}
	_, sql, _ := strings.Cut(after, "\n")
	sql, _, _ = strings.Cut(sql, "-- name: ")
	return regexp.MustCompile(`@max_rows\b`).ReplaceAllString(sql, "100")
}

// A plan node as the server explains it.
type node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Plans    []node
}

func (n node) walk(visit func(node)) {
	visit(n)
	for _, child := range n.Plans {
		child.walk(visit)
	}
}

func (h *house) explain(sql string) node {
	h.t.Helper()
	var plans []struct{ Plan node }
	text := one[string](h, "explain (analyze, format json) "+sql)
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		h.t.Fatal(err)
	}
	return plans[0].Plan
}

func TestReadyMessagesUsesItsIndexHoweverLongTheQueue(t *testing.T) {
	for name, lanes := range map[string]int{"few lanes": 5, "many lanes": 2000} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.exec(`insert into turnkeeper.messages (agent, conversation, lane, body)
				select 'desk', 'c' || i % $1::int, 'desk/c' || i % $1::int, 'x' from generate_series(1, 20000) i`, lanes)
			for _, analyzed := range []bool{false, true} { // a new table has no statistics
				if analyzed {
					h.exec("analyze turnkeeper.messages")
				}
				touched := 0.0
				h.explain(query(t, "scheduler.sql", "ReadyMessages")).walk(func(n node) {
					if n.Relation != "messages" {
						return
					}
					if n.Type == "Seq Scan" || n.Type == "Bitmap Heap Scan" {
						t.Errorf("analyzed %v: a %s of messages", analyzed, n.Type)
					}
					touched += n.Rows * n.Loops
				})
				if limit := float64(3*lanes + 10); touched > limit {
					t.Errorf("analyzed %v: read %v messages for the heads of %d lanes", analyzed, touched, lanes)
				}
			}
			h.inTick(func(ctx context.Context, tick *storage.Tick) error {
				ready, err := tick.ReadyMessages(ctx, 100)
				if want := min(lanes, 100); len(ready) != want {
					t.Errorf("%d heads, want %d", len(ready), want)
				}
				for i := 1; i < len(ready); i++ {
					if ready[i].MessageID <= ready[i-1].MessageID {
						t.Fatal("not in order")
					}
				}
				return err
			})
		})
	}
}

func TestReadyMessagesOrder(t *testing.T) {
	h := newHouse(t)
	h.exec(`insert into turnkeeper.messages (agent, conversation, lane, body, priority, due_at) values
		('desk', 'a', 'desk/a', 'a late', 1000, now() - interval '1 minute'),
		('desk', 'a', 'desk/a', 'a low', 0, now() - interval '2 minutes'),
		('desk', 'a', 'desk/a', 'a high', 5, now() - interval '2 minutes'),
		('desk', 'b', 'desk/b', 'b', 0, now() - interval '3 minutes'),
		('desk', 'c', 'desk/c', 'c not yet', 0, now() + interval '1 minute'),
		('desk', 'd', 'desk/d', 'd', 9, now() - interval '3 minutes')`)
	h.inTick(func(ctx context.Context, tick *storage.Tick) error {
		ready, err := tick.ReadyMessages(ctx, 100)
		var bodies []string
		for _, r := range ready {
			bodies = append(bodies, one[string](h, "select body from turnkeeper.messages where id = $1", r.MessageID))
		}
		if got := strings.Join(bodies, ", "); got != "d, b, a high" {
			t.Errorf("heads in this order: %s", got)
		}
		return err
	})
}
