package worker

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"turnkeeper/internal/bench"
	"turnkeeper/internal/cli/shell"
)

const benchHelp = `bench measures the standard turn: one message, three rounds against a model
server that answers at once over HTTP, two no-op tools of 200 bytes in each of
the first two rounds. It runs with durability barrier, which writes an answer and
its results together, and with durability step ("turnkeeper, step").

In the same run, in alternating blocks, it measures three other systems with the
same turn: a lean River job that inserts one row per step, and two floors, which
store the steps in two plain tables without a queue, leases or a second process:
one commits each step, the other commits all steps of a turn at its end. Compare
ratios: other load on this machine affects all alike.

Worker, sender, model server and the other systems are processes of their own,
so that CPU time and memory are measured for each (on Linux). The benchmark uses a
temporary private Postgres with fsync on, and removes it. A full run takes some
minutes. --flush-delay simulates a slower disk.

--flat measures instead how the cost of a turn grows with lanes, waiting messages,
finished turns and so on: blocks, CPU and turns per second, and their ratios to the
first size. --workers measures one scheduler with several worker processes, and
--retention turns beside a purge.`

const benchExamples = `  worker bench
  worker bench --quick
  worker bench --lanes 10,1000,10000 --idle 0 --watched 0 --history 0
  worker bench --flat
  worker bench --sizes waiting=0:100000,finished=0:1000000
  worker bench --workers 1,2,4
  worker bench --retention 100000
  worker bench --json > bench.json`

// benchCommand returns the command `worker bench`.
func benchCommand(s *shell.Session) *cobra.Command {
	o := bench.Default()
	var asJSON, quick, flat, full bool
	var sizes map[string]string
	var out string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what a turn costs on this machine",
		Long:  benchHelp, Example: benchExamples,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if quick {
				quicken(cmd.Flags(), &o)
			}
			if flat || full || len(sizes) > 0 {
				var err error
				if o.Flat, err = flatSizes(full, sizes); err != nil {
					return err
				}
			}
			if o.Flat != nil || o.Workers != nil || o.Retention > 0 {
				only(cmd.Flags(), &o, full)
			}
			if err := checkBench(o); err != nil {
				return err
			}
			o.Progress = func(what string) { s.Err.Line("measuring: %s", what) }
			report, err := bench.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			if out != "" {
				if err := writeReport(out, report); err != nil {
					return err
				}
			}
			if asJSON {
				return shell.WriteJSON(s.Stdout, report)
			}
			printBench(s, report)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Turns, "turns", o.Turns, "turns for each figure of throughput; 0: none")
	flags.IntSliceVar(&o.Lanes, "lanes", o.Lanes, "numbers of lanes to measure throughput with, up to 10000")
	flags.IntVar(&o.Idle, "idle", o.Idle, "turns of each system on an idle machine; 0: none")
	flags.IntVar(&o.Watched, "watched", o.Watched, "streamed turns, half of them with ten watchers; 0: none")
	flags.IntVar(&o.History, "history", o.History, "past turns of a long conversation; 0: not measured")
	flags.IntVar(&o.WarmUp, "warm-up", o.WarmUp, "turns of each system before each figure, which are not counted")
	flags.BoolVar(&flat, "flat", false,
		"measure only how the cost of a turn grows with lanes, messages, turns and so on")
	flags.BoolVar(&full, "full", false, "--flat with its full sizes; an estimate: fifteen minutes and 25 GB of disk")
	flags.StringToStringVar(&sizes, "sizes", nil,
		"--flat with these series and sizes only, such as finished=0:1000000,lanes=10:100")
	flags.IntSliceVar(&o.Workers, "workers", nil,
		"measure only trivial turns with these numbers of worker processes and one scheduler")
	flags.IntVar(&o.Retention, "retention", 0, "measure only turns while so many old ones are deleted")
	flags.DurationVar(&o.FlushDelay, "flush-delay", 0, "extra time for each flush of the write-ahead log, up to 100ms")
	flags.BoolVar(&quick, "quick", false, "run a few turns for a rough look")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	flags.StringVar(&out, "out", "", "also write the JSON object to this file")
	cmd.AddCommand(benchProcessCommand(s), benchCompareCommand(s))
	hideInherited(cmd)
	return cmd
}

// quicken replaces the defaults of a full run, but not what the flags say.
func quicken(flags *pflag.FlagSet, o *bench.Options) {
	quick := bench.Quick()
	o.IdleCPU, o.Rest = quick.IdleCPU, quick.Rest
	for flag, n := range map[string]struct{ to, of *int }{
		"turns": {&o.Turns, &quick.Turns}, "idle": {&o.Idle, &quick.Idle}, "watched": {&o.Watched, &quick.Watched},
		"history": {&o.History, &quick.History}, "warm-up": {&o.WarmUp, &quick.WarmUp},
	} {
		if !flags.Changed(flag) {
			*n.to = *n.of
		}
	}
	if !flags.Changed("lanes") {
		o.Lanes = quick.Lanes
	}
}

// flatTurns are the turns of a step, and those before it, without --full.
const flatTurns, flatWarmUp = 300, 60

// only leaves out the sections whose flags are not set, since another measurement was asked for.
func only(flags *pflag.FlagSet, o *bench.Options, full bool) {
	for flag, n := range map[string]*int{"idle": &o.Idle, "watched": &o.Watched, "history": &o.History} {
		if !flags.Changed(flag) {
			*n = 0
		}
	}
	if !flags.Changed("lanes") {
		o.Lanes = nil
	}
	if !full && !flags.Changed("turns") {
		o.Turns = flatTurns
	}
	if !full && !flags.Changed("warm-up") {
		o.WarmUp = flatWarmUp
	}
}

// flatSizes returns the sizes of the series; the named ones only, if there are any.
func flatSizes(full bool, named map[string]string) (map[string][]int, error) {
	all := bench.FlatSizes(full)
	if len(named) == 0 {
		return all, nil
	}
	sizes := map[string][]int{}
	for name, list := range named {
		if all[name] == nil {
			return nil, shell.Misused("--sizes has the series %q: there are %s", name,
				strings.Join(slices.Sorted(maps.Keys(all)), ", "))
		}
		for text := range strings.SplitSeq(list, ":") {
			size, err := strconv.Atoi(text)
			least := 0
			if n := len(sizes[name]); n > 0 {
				least = sizes[name][n-1]
			} else if name == "lanes" {
				least = 1
			}
			if err != nil || size < least {
				return nil,
					shell.Misused("--sizes has %s=%s: sizes are whole numbers in growing order, such as %s=10:1000",
						name, list, name)
			}
			sizes[name] = append(sizes[name], size)
		}
	}
	return sizes, nil
}

func checkBench(o bench.Options) error {
	for flag, n := range map[string]int{
		"idle": o.Idle, "turns": o.Turns, "watched": o.Watched, "history": o.History, "warm-up": o.WarmUp,
		"retention": o.Retention,
	} {
		if n < 0 {
			return shell.Misused("--%s is %d: it must not be negative; 0 means none", flag, n)
		}
	}
	for _, workers := range o.Workers {
		if workers < 1 || workers > 100 {
			return shell.Misused("--workers has %d: it must be 1 to 100", workers)
		}
	}
	for _, lanes := range o.Lanes {
		if lanes < 1 || lanes > 10_000 {
			return shell.Misused("--lanes has %d: it must be 1 to 10000", lanes)
		}
	}
	return nil
}

func writeReport(path string, r bench.Report) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// benchProcessCommand returns the hidden command by which bench starts its processes.
func benchProcessCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use: "process NAME", Short: "Run one process of a benchmark", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return bench.Part(cmd.Context(), args[0], s.Stdin, s.Stdout)
		},
	}
}

// benchCompareCommand returns the command `worker bench compare`.
func benchCompareCommand(s *shell.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "compare BEFORE AFTER [BEFORE AFTER]...",
		Short: "Compare the figures of two programs",
		Long: `compare reads pairs of files that bench --out wrote, and prints the ratio of each
figure, after divided by before: the median of the pairs, and the lowest and the
highest. Measure the two programs alternately.`,
		Example: `  worker bench compare old1.json new1.json old2.json new2.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || len(args)%2 != 0 {
				return fmt.Errorf("compare needs pairs of files, not %d", len(args))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			reports := make([]bench.Report, len(args))
			for i, path := range args {
				var err error
				if reports[i], err = bench.ReadReport(path); err != nil {
					return shell.Wrong(err)
				}
			}
			printComparison(s, bench.Compare(reports))
			return nil
		},
	}
}

// hideInherited hides the worker's settings in the help of a subcommand.
func hideInherited(cmd *cobra.Command) {
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(c *cobra.Command, args []string) {
		c.InheritedFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
		help(c, args)
	})
}
