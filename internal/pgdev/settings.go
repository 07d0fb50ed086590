package pgdev

import (
	"maps"
	"slices"
	"strings"
)

// careful are the settings of a durable server. They include defaults on which durability depends.
var careful = map[string]string{
	"fsync":              "on",
	"synchronous_commit": "on",
	"full_page_writes":   "on",
	"shared_buffers":     "128MB",
}

// quick are the settings of a fast server whose data may be lost.
var quick = map[string]string{
	"fsync":                 "off",
	"synchronous_commit":    "off",
	"full_page_writes":      "off",
	"shared_buffers":        "64MB",
	"wal_level":             "minimal",
	"max_wal_senders":       "0",
	"checkpoint_timeout":    "30min",
	"autovacuum_naptime":    "10min",
	"bgwriter_lru_maxpages": "0",
}

// common are the settings of both. Without jit the cost of a statement is stable.
var common = map[string]string{
	"max_connections": "200",
	"timezone":        "UTC",
	"log_timezone":    "UTC",
	"jit":             "off",
}

// settings returns all server settings by name.
func (l *launch) settings() map[string]string {
	all := maps.Clone(careful)
	if l.opts.Quick {
		maps.Copy(all, quick)
	}
	maps.Copy(all, common)
	maps.Copy(all, l.opts.Settings)
	maps.Copy(all, map[string]string{
		"listen_addresses":        "",
		"port":                    port,
		"unix_socket_directories": quoteListItem(l.socketDir),
		"unix_socket_permissions": "0700",
		"logging_collector":       "off",
		"log_destination":         "stderr",
	})
	return all
}

// arguments returns the settings as sorted arguments of the server.
func arguments(settings map[string]string) []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// quoteListItem quotes a folder as an item of a list setting.
func quoteListItem(item string) string {
	return `"` + strings.ReplaceAll(item, `"`, `""`) + `"`
}
