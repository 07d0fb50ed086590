package turnctl

import "github.com/spf13/cobra"

// examples are the examples of commands that set none themselves, by path.
var examples = map[string]string{
	"turnctl turns": `  turnctl turns --agent clerk --state failed
  turnctl turns --before 400 --limit 100 -o json`,
	"turnctl inbox": `  turnctl inbox --state waiting
  turnctl inbox --agent clerk -o json`,
	"turnctl outbox": `  turnctl outbox --agent clerk
  turnctl outbox --after 120 --follow -o json`,
	"turnctl lanes":            `  turnctl lanes --agent clerk`,
	"turnctl models":           `  turnctl models`,
	"turnctl levels pin":       `  turnctl levels pin low --agent clerk --reason "until the invoice is paid"`,
	"turnctl levels unpin":     `  turnctl levels unpin --agent clerk`,
	"turnctl schedules pause":  `  turnctl schedules pause watcher`,
	"turnctl schedules resume": `  turnctl schedules resume watcher/default`,
	"turnctl schedules set":    `  turnctl schedules set watcher "*/5 * * * *"`,
	"turnctl schedules reset":  `  turnctl schedules reset watcher`,
	"turnctl schedules run":    `  turnctl schedules run watcher`,
	"turnctl scheduler status": `  turnctl scheduler status -o json`,
	"turnctl scheduler pause":  `  turnctl scheduler pause "the provider is down"`,
	"turnctl scheduler resume": `  turnctl scheduler resume
  turnctl scheduler resume --now    # after a planned switchover`,
	"turnctl scheduler set": `  turnctl scheduler set --poll-interval 3s --max-dispatches 50`,
	"turnctl agents":        `  turnctl agents -o json`,
	"turnctl agents check":  `  turnctl agents check agents/`,
	"turnctl workers":       `  turnctl workers`,
	"turnctl migrate": `  turnctl migrate
  turnctl migrate --status`,
	"turnctl version":   `  turnctl version`,
	"turnctl doctor":    `  turnctl doctor -o json`,
	"turnctl set-aside": `  turnctl set-aside`,
}

// addExamples sets the examples of commands without any.
func addExamples(cmd *cobra.Command) {
	if text := examples[cmd.CommandPath()]; text != "" && cmd.Example == "" {
		cmd.Example = text
	}
	for _, sub := range cmd.Commands() {
		addExamples(sub)
	}
}
