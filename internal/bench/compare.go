package bench

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// ReadReport reads a report from a file. The error says if another version of the benchmark wrote it.
func ReadReport(path string) (r Report, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil || r.Format != Format {
		return r, fmt.Errorf("%s is no report of this version of the benchmark (format %q)", path, Format)
	}
	return r, nil
}

// A Ratio compares one value of two programs.
type Ratio struct {
	Name                    string
	Before, After           float64 // medians
	Median, Lowest, Highest float64 // of after/before of each pair
}

// Compare compares reports in pairs: before, after, before, after. It leaves out values that not all
// reports have.
func Compare(reports []Report) []Ratio {
	var names []string
	before, after, quotients := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	for i := 0; i+1 < len(reports); i += 2 {
		old, _ := reports[i].values()
		now, order := reports[i+1].values()
		if i == 0 {
			names = order
		}
		for name, value := range now {
			if old[name] > 0 && value > 0 {
				before[name], after[name] = append(before[name], old[name]), append(after[name], value)
				quotients[name] = append(quotients[name], value/old[name])
			}
		}
	}
	var all []Ratio
	for _, name := range names {
		if q := quotients[name]; len(q) == len(reports)/2 {
			all = append(all, Ratio{
				Name: name, Before: median(before[name]), After: median(after[name]), Median: median(q),
				Lowest: slices.Min(q), Highest: slices.Max(q),
			})
		}
	}
	return all
}

// median sorts the values. Of an even number it returns the mean of the middle two.
func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// values returns the values of a report by name, and the names in order.
func (r Report) values() (values map[string]float64, names []string) {
	values = map[string]float64{}
	for _, f := range r.Figures {
		prefix := strings.TrimSuffix(fmt.Sprintf("%s, %d lanes, %s, %s", f.Section, f.Lanes, f.System, f.Case), ", ")
		add := func(name string, value float64) {
			name = prefix + ": " + name
			values[name] = value
			names = append(names, name)
		}
		add("turns/s", f.TurnsPerS)
		add("reply p50 ms", float64(f.Reply.P50.Microseconds())/1000)
		add("reply p95 ms", float64(f.Reply.P95.Microseconds())/1000)
		add("reply p99 ms", float64(f.Reply.P99.Microseconds())/1000)
		for _, process := range slices.Sorted(maps.Keys(f.CPU)) {
			add("CPU ms of "+process, f.CPU[process])
		}
		add("request bytes", f.RequestBytes)
		add("requests repeated", f.Repeated)
		add("write transactions", f.Transactions)
		add("statements", f.Statements)
		add("WAL bytes", f.WAL)
		add("dead tuples", f.DeadTuples)
		add("blocks", f.Blocks)
		if f.Resting != nil && f.Peak != nil {
			add("anonymous bytes at rest", float64(f.Resting.Anonymous))
			add("anonymous bytes at peak", float64(f.Peak.Anonymous))
		}
	}
	if i := r.Idle; i != nil {
		values["worker without work: CPU ms per second"] = i.Worker + i.Backends
		names = append(names, "worker without work: CPU ms per second")
	}
	return values, names
}
