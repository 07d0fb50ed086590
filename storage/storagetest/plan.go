package storagetest

import "encoding/json"

// A Plan is a node of a plan as the server explains it.
type Plan struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Hit      int     `json:"Shared Hit Blocks"` // with all nodes below
	Read     int     `json:"Shared Read Blocks"`
	Plans    []Plan
}

// Walk visits what was run.
func (n Plan) Walk(visit func(Plan)) {
	if n.Loops == 0 {
		return
	}
	visit(n)
	for _, child := range n.Plans {
		child.Walk(visit)
	}
}

// Pages is how many pages the statement looked at, functions included.
func (n Plan) Pages() int { return n.Hit + n.Read }

// Explain runs a statement as a worker's session does, and says how.
func (db *DB) Explain(sql string) Plan {
	db.T.Helper()
	var plans []struct{ Plan Plan }
	text := One[string](db, "explain (analyze, buffers, format json) "+sql)
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		db.T.Fatal(err)
	}
	return plans[0].Plan
}

// NeverAnalyzed keeps autovacuum off the tables: when it comes, by the clock, plans
// change.
func (db *DB) NeverAnalyzed() {
	db.T.Helper()
	db.Exec(`do $$ declare t regclass; begin
		for t in select oid from pg_class where relnamespace = 'turnkeeper'::regnamespace and relkind = 'r' loop
			execute format('alter table %s set (autovacuum_enabled = false)', t);
		end loop;
	end $$`)
}
