package words

import (
	"fmt"
	"time"
)

// Refusing says for how long the database has refused to write, how often, and with which SQLSTATE.
func Refusing(d time.Duration, times int, sqlState string) string {
	return fmt.Sprintf("it has refused to write for %s (%s, %s)", Coarse(d), sqlState, Plural(times, "attempt"))
}

// Refused says for how long a write to the journal waited. Without a SQLSTATE the database could not be reached.
func Refused(d time.Duration, sqlState string) string {
	if sqlState == "" {
		return "the database was unavailable for " + Coarse(d)
	}
	return fmt.Sprintf("the database refused to write for %s (%s)", Coarse(d), sqlState)
}

// databaseAdvice says what to do about an error of the database, by its SQLSTATE, or by storage.Cause.
var databaseAdvice = map[string]string{
	// The connection.
	"refused":     "nothing listens at that address: start Postgres, or correct the host and port of DATABASE_URL",
	"name":        "correct the host's name in DATABASE_URL, or make this machine's name server resolve it",
	"unreachable": "correct the host of DATABASE_URL, or the network between this machine and it",
	"timeout":     "nothing answers: check the host and port of DATABASE_URL and firewalls, and whether the server hangs",
	"tls":         "correct sslmode and sslrootcert in DATABASE_URL, or set up TLS at the server: one side requires what the other has not",
	"closed":      "check that DATABASE_URL leads to Postgres, and read the server's log for why it closes connections",
	"url":         "correct DATABASE_URL",
	"28P01":       "correct the password in DATABASE_URL, or set that of the role at the server: the one given is wrong, or the role does not exist",
	"28000":       "the server lets this role in from here only by other rules: add a line to its pg_hba.conf and reload it, use TLS if the line requires it (sslmode=require), or create the role with login",
	"3D000":       "create the database, or correct its name in DATABASE_URL",
	"53300":       "the server's connections are all in use: raise max_connections, lower db_pool_size, or end sessions that pg_stat_activity shows as idle",
	"57P01":       "the server shuts down: start it again, or wait until it is back",
	"57P02":       "the server has crashed and recovers: wait, and read its log for why",
	"57P03":       "the server starts, recovers or shuts down: wait a moment; if that goes on, read its log",
	// Writes.
	"53100": "the database's disk is full: free space or enlarge it; what waits then goes on by itself",
	"53200": "the server is out of memory: give it more, lower work_mem or max_connections, or end what uses it",
	"53400": "a limit of the server's settings is reached, for example temp_file_limit: raise it",
	"25006": "the server is read-only: set DATABASE_URL to the primary, or find out who has set default_transaction_read_only",
	"42501": "the role of DATABASE_URL lacks rights: make it the owner of the schema turnkeeper, or connect as the owner",
	"42P01": "a table is missing: run turnctl migrate, or restore the database",
	"55P03": "another session holds a lock: pg_stat_activity and pg_blocking_pids() show which; end it",
	"57014": "the statement takes longer than its timeout: another session may hold a lock, or the server is overloaded: see pg_stat_activity",
	"58030": "the server cannot read or write its files: check its disk, and its log",
	"58P01": "a file of the server is missing: check its disk, and its log",
	"XX001": "data of the server is damaged: read its log, and restore a backup",
	"XX002": "an index of the server is damaged: read its log, and rebuild the index",
}

// DatabaseAdvice says what to do about an error of the database with a storage.Cause, or returns other if the cause is
// unknown.
func DatabaseAdvice(cause, other string) string {
	if advice, ok := databaseAdvice[cause]; ok {
		return advice
	}
	return other
}

// WriteAdvice says what to do about a write that the database refuses with a SQLSTATE.
func WriteAdvice(sqlState string) string {
	return DatabaseAdvice(sqlState,
		"a trigger, a rule, a constraint or an extension of the database refuses the write: remove what the error names")
}
