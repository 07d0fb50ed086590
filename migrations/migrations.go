// Package migrations holds the schema of Turnkeeper as numbered SQL files, NNN_name.up.sql and NNN_name.down.sql.
// Package storage applies them. The first eight are the whole schema of the first release, one subject each. Released
// files are never changed; a new file follows them.
package migrations

import "embed"

// Files are the SQL files.
//
//go:embed *.sql
var Files embed.FS
