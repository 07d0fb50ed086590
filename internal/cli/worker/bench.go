package worker

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"turnkeeper/internal/bench"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
)

// benchCommand returns the command `worker bench`.
func benchCommand(s *shell.Session) *cobra.Command {
	var o bench.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what a turn costs on this machine",
		Long: `bench measures the standard turn: one message, three rounds against a model
server that answers at once over HTTP, two no-op tools of 200 bytes in each of
the first two rounds, every answer and result durable before the next step.

Each figure is compared with a floor: the same turn, measured in the same run,
on two plain tables with one commit per step, without a queue, leases or a second
process. An idle turn is also compared with a plain River job that inserts one
row per step. Sender, worker, model server and Postgres share this machine. The
benchmark uses a temporary private Postgres with fsync on, and removes it.

Apart from its commits a turn hardly waits for the disk, so the ratios depend on
the disk as much as on the worker: a slow disk gives better ratios. --flush-delay
simulates a slower disk.`,
		Example: `  worker bench
  worker bench --flush-delay 1ms
  worker bench --json > bench.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for flag, n := range map[string]int{"idle": o.Idle, "turns": o.Turns, "watched": o.Watched} {
				if n < 0 {
					return shell.Misused("--%s is %d: it must not be negative; 0 measures none", flag, n)
				}
			}
			o.Progress = func(what string) { s.Err.Line("measuring: %s", what) }
			report, err := bench.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			if asJSON {
				return shell.WriteJSON(s.Stdout, report)
			}
			printBench(s, report)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Idle, "idle", 100, "turns on an idle system; 0: none")
	flags.IntVar(&o.Turns, "turns", 600, "turns for each throughput figure; 0: none")
	flags.IntVar(&o.Watched, "watched", 80, "streamed turns, half of them with ten watchers; 0: none")
	flags.IntSliceVar(&o.Lanes, "lanes", []int{1, 10, 100}, "numbers of lanes to measure with")
	flags.DurationVar(&o.FlushDelay, "flush-delay", 0, "extra time for each flush of the write-ahead log, up to 100ms")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	hideInherited(cmd)
	return cmd
}

// hideInherited hides the worker's settings in the help of a subcommand.
func hideInherited(cmd *cobra.Command) {
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(c *cobra.Command, args []string) {
		c.InheritedFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
		help(c, args)
	})
}

func printBench(s *shell.Session, r bench.Report) {
	s.Out.Line("%d processors, Postgres %s with fsync %s; %d idle turns, %d turns per throughput figure, %s in total",
		r.CPUs, r.Postgres, r.FSync, r.IdleTurns, r.Turns, r.Took.Round(time.Second))
	s.Out.Line("a flush of the disk takes %s%s", inMillis(r.Flush), slower(r.FlushDelay))
	if r.IdleTurns > 0 {
		printIdle(s, r)
	}
	if r.Watched.Events > 0 {
		printWatched(s, r.Watched)
	}
	if len(r.Throughput) > 0 {
		s.Out.Line("")
		s.Out.Line("%-34s %10s %10s %10s", "turns a second", "turns", "floor", "ratio")
	}
	for _, t := range r.Throughput {
		s.Out.Line("%-34s %10.1f %10.1f %10.2f", term.Plural(t.Lanes, "lane"), t.Turns, t.Floor, t.Ratio)
	}
}

func printIdle(s *shell.Session, r bench.Report) {
	printLatencies(s, "idle", []namedLatency{
		{"enqueue → first model request", r.FirstRequest}, {"enqueue → reply", r.Reply}, {"a plain River job", r.PlainReply}, {"the floor", r.FloorReply},
	})
	s.Out.Line("%-34s %9.2f×   (a plain River job: %.2f×)", "enqueue → reply, ratio to the floor", r.ReplyRatio, r.PlainRatio)
	s.Out.Line("%-34s %10.1f   (a plain River job: %.1f, the floor: %.1f)", "write transactions a turn", r.WriteTxPerTurn, r.PlainTxPerTurn, r.FloorTxPerTurn)
}

func printWatched(s *shell.Session, w bench.Watched) {
	printLatencies(s, "streamed, 200 ms a round", []namedLatency{{"enqueue → reply", w.Alone}, {"enqueue → reply, 10 watchers", w.Watched}})
	s.Out.Line("%-34s %9.3f×   (%d events per turn)", "watched, relative to unwatched", w.Ratio, w.Events)
}

// A namedLatency is a row of a table of latencies.
type namedLatency struct {
	name string
	bench.Latency
}

func printLatencies(s *shell.Session, title string, rows []namedLatency) {
	s.Out.Line("")
	s.Out.Line("%-34s %10s %10s %10s", title, "median", "90 %", "99 %")
	for _, row := range rows {
		s.Out.Line("%-34s %10s %10s %10s", row.name, inMillis(row.P50), inMillis(row.P90), inMillis(row.P99))
	}
}

// slower describes --flush-delay; it returns "" for none.
func slower(delay time.Duration) string {
	if delay == 0 {
		return ""
	}
	return fmt.Sprintf("; each flush of the write-ahead log was delayed by %s", inMillis(delay))
}

// inMillis formats a duration in milliseconds, below 1 ms with two decimals.
func inMillis(d time.Duration) string {
	places := 1
	if d < time.Millisecond {
		places = 2
	}
	return fmt.Sprintf("%.*f ms", places, float64(d.Microseconds())/1000)
}
