package diagnosis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnkeeper/internal/words"
	"turnkeeper/storage"
)

// examineDatabase checks the server and the schema. usable is false if nothing can be read from the schema.
func examineDatabase(ctx context.Context, d *Report, set Settings,
	store Store) (facts storage.ServerFacts, usable bool) {
	asked := time.Now()
	facts, err := store.ServerFacts(ctx)
	if err != nil {
		d.Add(Fail, "database", err.Error(), "the user of DATABASE_URL must be able to read the server's settings")
		return facts, false
	}
	examineServer(d, set, facts, facts.Now.Sub(asked.Add(time.Since(asked)/2)))
	if !examineSchema(ctx, d, set, store) {
		return facts, false
	}
	examineWrites(ctx, d, store, facts.InRecovery)
	examineRights(ctx, d, store)
	return facts, true
}

// examineSchema reports whether the schema is that of this program, or can be used by it.
func examineSchema(ctx context.Context, d *Report, set Settings, store Store) bool {
	migrations, err := store.Migrations(ctx)
	if err != nil {
		d.Checks = append(d.Checks, Check{Name: "schema", Verdict: Fail, Found: err.Error(),
			Advice: "the user of DATABASE_URL must own the schema turnkeeper", Unread: true})
		return false
	}
	if err := storage.CheckCompatible(migrations); err != nil {
		d.Add(Fail, "schema", err.Error(), "use the program that migrated it, or a later one")
		return false
	}
	if newer := slices.IndexFunc(migrations, func(m storage.Migration) bool { return m.Newer }); newer >= 0 {
		d.Add(Warn, "schema", fmt.Sprintf("newer than this program, which does not know %s",
			words.Plural(len(migrations)-newer, "migration")), "use the program that migrated it")
	}
	applied := 0
	for _, m := range migrations {
		if m.Applied {
			applied++
		}
	}
	if applied < len(migrations) {
		d.Checks = append(d.Checks, Check{Name: "what waits and runs", Verdict: Fail,
			Found: "not checked: the schema is not complete", Unread: true})
	}
	d.Judge(applied == len(migrations), Fail, "schema", fmt.Sprintf("%d of %s applied", applied,
		words.Plural(len(migrations), "migration")),
		`run "`+set.command("turnctl")+` migrate", or start a worker`)
	return applied == len(migrations)
}

// examineWrites reports whether the database accepts the writes of a turn.
func examineWrites(ctx context.Context, d *Report, store Store, standby bool) {
	if standby {
		d.Add(Fail, "writable", "no: the server is a standby", "set DATABASE_URL to the primary")
		return
	}
	if err := store.TryWrite(ctx); err != nil {
		d.Add(Fail, "writable", "no: "+err.Error(), words.WriteAdvice(storage.Cause(err)))
		return
	}
	d.Add(OK, "writable", "yes: a write as a turn makes it was accepted, and rolled back", "")
}

// examineRights reports roles that may write rows without the functions for senders.
func examineRights(ctx context.Context, d *Report, store Store) {
	statements, err := store.RightsToRevoke(ctx)
	if err != nil {
		d.Unread("rights", err)
		return
	}
	if len(statements) == 0 {
		d.Add(OK, "rights", "only the workers' role may write to the tables", "")
	}
	for _, statement := range statements {
		d.Add(Fail, "rights", "a role may do more than call the functions for senders, and so stop the service",
			"run: "+statement+` It can send with the rights in README.md, section "From your own program"`)
	}
}

// The oldest supported Postgres, and the maximum difference between clocks.
const (
	oldestServer = 14
	clocksApart  = 2 * time.Second
)

func examineServer(d *Report, set Settings, f storage.ServerFacts, off time.Duration) {
	version, _, _ := strings.Cut(f.Version, ".")
	major, _ := strconv.Atoi(version)
	d.Judge(major >= oldestServer, Warn, "database", "Postgres "+f.Version+", "+set.Database,
		fmt.Sprintf("use Postgres %d or later", oldestServer))
	d.Judge(f.FSync == "on", Fail, "fsync", f.FSync,
		"set fsync = on: without it a crash of the machine loses messages and replies")
	d.Judge(f.SynchronousCommit != "off", Fail, "synchronous_commit", f.SynchronousCommit,
		"set synchronous_commit = on for this database: with off, acknowledged messages can be lost and calls started twice")
	d.Judge(f.FullPageWrites == "on", Warn, "full_page_writes", f.FullPageWrites,
		"set full_page_writes = on, unless the file system writes pages atomically")
	d.Judge(f.Encoding == "UTF8", Fail, "encoding", f.Encoding,
		"create a database with encoding UTF8 and set DATABASE_URL to it")
	d.Judge(off.Abs() <= clocksApart, Warn, "clock", fmt.Sprintf("the database's is %s", ahead(off)),
		"synchronise both clocks by NTP: leases use the database's clock, logs use that of their process")
}

func ahead(off time.Duration) string {
	switch {
	case off.Abs() < 100*time.Millisecond:
		return "the same as that of this process"
	case off > 0:
		return words.Exact(off) + " ahead of that of this process"
	default:
		return words.Exact(-off) + " behind that of this process"
	}
}

// extraConnections is the number of a worker's connections outside its pool:
// for ends of turns, the doorbell, and River's listener.
const extraConnections = 4

func examineConnections(d *Report, set Settings, f storage.ServerFacts, alive int) {
	each := set.DBPoolSize + extraConnections
	needed := each*max(alive, 1) + 10
	d.Judge(f.MaxConnections >= needed, Warn, "connections",
		fmt.Sprintf("the server allows %d; a worker may use %d", f.MaxConnections, each),
		fmt.Sprintf("raise max_connections to %d or more, or lower db_pool_size", needed))
}
