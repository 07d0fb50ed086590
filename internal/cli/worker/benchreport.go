package worker

import (
	"fmt"
	"time"

	"turnkeeper/internal/bench"
	"turnkeeper/internal/cli/shell"
	"turnkeeper/internal/cli/term"
)

func printBench(s *shell.Session, r bench.Report) {
	s.Out.Line("%s, Postgres %s with fsync %s, %s in total", term.Plural(r.CPUs, "processor"), r.Postgres, r.FSync,
		r.Took.Round(time.Second))
	s.Out.Line("a flush of the disk takes %s%s", inMillis(r.Flush), slower(r.FlushDelay))
	if r.CPUFrom == "" {
		s.Out.Line("CPU time and memory are not measured: this system has no /proc as Linux has")
	}
	if r.StatementsFrom == "" {
		s.Out.Line(
			"statements and blocks are not counted: install pg_stat_statements, which is part of Postgres's contrib")
	}
	for start := 0; start < len(r.Figures); {
		end := start + 1
		for end < len(r.Figures) && r.Figures[end].Section == r.Figures[start].Section &&
			r.Figures[end].Lanes == r.Figures[start].Lanes {
			end++
		}
		printFigures(s, r.Figures[start:end])
		start = end
	}
	for _, series := range r.Series {
		printSeries(s, series)
	}
	if g := r.Grants; g != nil {
		s.Out.Line(
			"\nOne scheduler alone granted %d turns, %.0f a second: %.2f ms CPU of its process and %.2f ms of Postgres for each, %.0f blocks",
			g.Grants, g.PerSecond, g.Scheduler, g.Postgres, g.Blocks)
	}
	if p := r.Retention; p != nil {
		s.Out.Line(
			"\n%d old turns were deleted, %.0f a second%s; the longest statement of the purge took %.1f ms, of others %.1f ms (%s), without purge %.1f ms",
			p.Turns, p.PerSecond, measured(", all of them before the end", p.All), p.Longest, p.OfMS, p.Of, p.AloneMS)
	}
	if i := r.Idle; i != nil {
		s.Out.Line("\nA worker without work: %.1f ms CPU per second, and %.1f ms of its sessions (over %s)", i.Worker,
			i.Backends, i.Over.Round(time.Second/10))
	}
	printTargets(s, r.Targets)
}

// printFigures prints the figures of a section with one number of lanes. Ratios are those of the first
// figure to the others.
func printFigures(s *shell.Session, figures []bench.Figure) {
	first := figures[0]
	s.Out.Line("\n%s, %s, %s each", first.Section, term.Plural(first.Lanes, "lane"), term.Plural(first.Turns, "turn"))
	speed := term.NewTable("", ">turns/s", ">first ÷ this", ">p50", ">p95", ">p99", ">1st request", ">CPU/turn",
		">runs turns", ">Postgres", ">sender", ">model")
	writes := term.NewTable("", ">write tx", ">statements", ">WAL kB", ">dead tuples", ">blocks", ">requests kB",
		">repeated", ">anon at rest", ">file at rest", ">anon at peak", ">file at peak")
	for _, f := range figures {
		name := f.System
		if f.Case != "" {
			name = f.Case
		}
		speed.Add(name, fmt.Sprintf("%.1f", f.TurnsPerS), fmt.Sprintf("%.2f", first.TurnsPerS/f.TurnsPerS),
			inMillis(f.Reply.P50), inMillis(f.Reply.P95), inMillis(f.Reply.P99), measured(inMillis(f.FirstRequest.P50),
				f.FirstRequest.P50 > 0),
			cpu(f, "total"), cpu(f, "worker", "river", "floor"), cpu(f, "postgres"), cpu(f, "sender"),
			cpu(f, "model"))
		rest, peak := [2]string{"", ""}, [2]string{"", ""}
		if f.Resting != nil {
			rest = mebibytes(*f.Resting)
		}
		if f.Peak != nil {
			peak = mebibytes(*f.Peak)
		}
		writes.Add(name, fmt.Sprintf("%.1f", f.Transactions), measured(fmt.Sprintf("%.1f", f.Statements),
			f.Statements > 0),
			fmt.Sprintf("%.1f", f.WAL/1000), measured(fmt.Sprintf("%.1f", f.DeadTuples),
				f.DeadTuples > 0 || f.System != bench.Turnkeeper && f.System != bench.Stepwise),
			measured(fmt.Sprintf("%.0f", f.Blocks), f.Blocks > 0),
			measured(fmt.Sprintf("%.1f", f.RequestBytes/1000), f.RequestBytes > 0),
			measured(fmt.Sprintf("%.1f %%", 100*f.Repeated), f.RequestBytes > 0), rest[0], rest[1], peak[0], peak[1])
	}
	speed.Print(s.Out)
	writes.Print(s.Out)
}

// printSeries prints counts first, which do not depend on the machine.
func printSeries(s *shell.Session, series bench.Series) {
	s.Out.Line("\n%s: %s", series.Name, series.Sizes)
	table := term.NewTable(">size", ">turns", ">blocks/turn", ">ratio", ">read", ">statements", ">write tx", ">WAL kB",
		">CPU/turn", ">ratio", ">Postgres", ">worker", ">scheduler", ">turns/s", ">ratio")
	ratio := func(x float64) string { return measured(fmt.Sprintf("%.2f", x), x > 0) }
	for _, step := range series.Steps {
		f := step.Figure
		table.Add(fmt.Sprint(step.Size), fmt.Sprint(f.Turns), measured(fmt.Sprintf("%.0f", f.Blocks), f.Blocks > 0),
			ratio(step.Blocks),
			measured(fmt.Sprintf("%.1f", f.BlocksRead), f.Blocks > 0), measured(fmt.Sprintf("%.1f", f.Statements),
				f.Statements > 0),
			fmt.Sprintf("%.1f", f.Transactions), fmt.Sprintf("%.1f", f.WAL/1000), cpu(f, "total"), ratio(step.CPU),
			cpu(f, "postgres"), cpu(f, "worker"), cpu(f, "scheduler"), fmt.Sprintf("%.1f", f.TurnsPerS),
			ratio(step.Turns))
	}
	table.Print(s.Out)
	for _, step := range series.Steps {
		for _, g := range step.Grew {
			s.Out.Line("at %d: %s read %.0f blocks (%+.0f) in %.2f ms per turn", step.Size, g.Statement, g.Blocks,
				g.Blocks-g.First, g.MS)
		}
	}
}

// measured returns a text, or "" if it was not measured.
func measured(text string, is bool) string {
	if is {
		return text
	}
	return ""
}

// cpu returns the CPU time per turn of the first of the processes that the figure has.
func cpu(f bench.Figure, processes ...string) string {
	for _, process := range processes {
		if ms, found := f.CPU[process]; found {
			return fmt.Sprintf("%.2f ms", ms)
		}
	}
	return ""
}

func mebibytes(m bench.Memory) [2]string {
	return [2]string{fmt.Sprintf("%.1f MiB", float64(m.Anonymous)/(1<<20)), fmt.Sprintf("%.1f MiB",
		float64(m.File)/(1<<20))}
}

func printTargets(s *shell.Session, targets []bench.Target) {
	if len(targets) == 0 {
		return
	}
	s.Out.Line("")
	table := term.NewTable("target", ">goal", ">measured", "")
	for _, t := range targets {
		limit, met := "at most", term.Cell{Text: "not met", Tone: term.Bad}
		if t.Least {
			limit = "at least"
		}
		if t.Met {
			met = term.Cell{Text: "met", Tone: term.Good}
		}
		table.Add(t.Name, fmt.Sprintf("%s %g %s", limit, t.Limit, t.Unit), fmt.Sprintf("%.2f %s", t.Value, t.Unit), met)
	}
	table.Print(s.Out)
}

func printComparison(s *shell.Session, ratios []bench.Ratio) {
	table := term.NewTable("figure", ">before", ">after", ">ratio", ">lowest", ">highest")
	for _, r := range ratios {
		table.Add(r.Name, fmt.Sprintf("%.4g", r.Before), fmt.Sprintf("%.4g", r.After), fmt.Sprintf("%.3f", r.Median),
			fmt.Sprintf("%.3f", r.Lowest), fmt.Sprintf("%.3f", r.Highest))
	}
	table.Print(s.Out)
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
