package builtin

import (
	"context"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // for machines without a time zone database

	"turnkeeper"
	"turnkeeper/tools"
)

type clockArgs struct {
	TimeZone string `json:"timezone,omitempty" jsonschema:"IANA name of the time zone, as Europe/Berlin; UTC when left out"`
}

type clockReading struct {
	Time     string `json:"time"`
	Weekday  string `json:"weekday"`
	TimeZone string `json:"timezone"`
	Offset   string `json:"utc_offset"`
}

// Clock returns the tool `clock`, of effect none, which tells the current time. A
// nil now means time.Now.
func Clock(now func() time.Time) tools.Tool {
	if now == nil {
		now = time.Now
	}
	spec := tools.Spec{
		Name:        "clock",
		Description: "Tells the current date, time and weekday, in UTC or in the time zone asked for.",
		Effect:      turnkeeper.EffectNone,
	}
	return tools.Func(spec, func(_ context.Context, args clockArgs) (clockReading, error) {
		zone, err := zoneOf(args.TimeZone)
		if err != nil {
			return clockReading{}, err
		}
		t := now().In(zone)
		return clockReading{
			Time:     t.Format(time.RFC3339),
			Weekday:  t.Weekday().String(),
			TimeZone: zone.String(),
			Offset:   t.Format("-07:00"),
		}, nil
	})
}

// zoneOf returns a time zone by its IANA name; empty means UTC. It refuses "Local",
// which would disclose the worker's location.
func zoneOf(name string) (*time.Location, error) {
	name = strings.TrimSpace(name)
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil,
			fmt.Errorf("there is no time zone %q; use an IANA name such as Europe/Berlin, or leave it out for UTC",
				name)
	}
	return zone, nil
}
