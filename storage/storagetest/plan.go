package storagetest

import (
	"encoding/json"
	"testing"
)

// A Plan is a node of a query plan, from explain.
type Plan struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Hit      int     `json:"Shared Hit Blocks"` // including all nodes below
	Read     int     `json:"Shared Read Blocks"`
	Plans    []Plan
}

// Walk visits the nodes that were executed.
func (n Plan) Walk(visit func(Plan)) {
	if n.Loops == 0 {
		return
	}
	visit(n)
	for _, child := range n.Plans {
		child.Walk(visit)
	}
}

// Pages returns the number of pages the statement read, including those of functions.
func (n Plan) Pages() int { return n.Hit + n.Read }

// Explain runs a statement in a session like a worker's and returns its plan.
func (db *DB) Explain(sql string) Plan {
	db.T.Helper()
	mustBeNew(db)
	return ParsePlan(db.T, One[string](db, "explain (analyze, buffers, format json) "+sql))
}

// ExplainWithin explains a statement that should read at most that many pages, and retries as Within does.
func ExplainWithin(db *DB, pages int, sql string) Plan {
	db.T.Helper()
	return Within(pages, func() Plan { return db.Explain(sql) })
}

// Within calls explain, and retries it once if the plan read more than that many pages. The first run may also have
// read the system catalogs: the session is new, or DDL in other databases has invalidated its caches.
func Within(pages int, explain func() Plan) Plan {
	if plan := explain(); plan.Pages() <= pages {
		return plan
	}
	return explain()
}

// ParsePlan reads the output of EXPLAIN in the format JSON.
func ParsePlan(t testing.TB, text string) Plan {
	t.Helper()
	var plans []struct{ Plan Plan }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan
}

// NeverAnalyzed turns autovacuum off for all tables, because plans change when it runs.
func (db *DB) NeverAnalyzed() {
	db.T.Helper()
	mustBeNew(db)
	db.Exec(`do $$ declare t regclass; begin
		for t in select oid from pg_class where relnamespace = 'turnkeeper'::regnamespace and relkind = 'r' loop
			execute format('alter table %s set (autovacuum_enabled = false)', t);
		end loop;
	end $$`)
}
