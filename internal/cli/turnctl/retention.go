package turnctl

import (
	"context"
	"fmt"
	"time"

	"turnkeeper/internal/cli/term"
	"turnkeeper/internal/config"
	"turnkeeper/internal/retention"
	"turnkeeper/storage/operate"
)

// examineRetention reports how long each class is kept.
func examineRetention(ctx context.Context, d *diagnosis, cfg *config.Config, store *operate.Store, c term.Clock) {
	kept, err := store.KeptFor(ctx)
	var stored operate.StoredParts
	if err == nil {
		stored, err = store.StoredParts(ctx)
	}
	if err != nil {
		d.add(checkFail, "retention", err.Error(), "")
		return
	}
	judgeRetention(d, cfg.Retention, kept, stored, c)
}

// A database has grown if it has grownBytes of what retention could delete, and some of it is older than grownFor.
const (
	grownBytes = 1 << 30
	grownFor   = 30 * 24 * time.Hour
)

// judgeRetention proposes a retention if nobody has decided on one and the database has grown. kept is what the database says.
func judgeRetention(d *diagnosis, set retention.Policy, kept time.Duration, stored operate.StoredParts, c term.Clock) {
	found := "by the settings here: " + set.With(kept).String()
	grown := stored.Bytes >= grownBytes && !stored.Oldest.IsZero() && c.Now.Sub(stored.Oldest) > grownFor
	if grown {
		found += fmt.Sprintf("; events, outputs and leases have %.1f GB, the oldest since %s", float64(stored.Bytes)/(1<<30), c.Moment(stored.Oldest))
	}
	d.judge(!grown || !set.Undecided(kept), checkWarn, "retention", found,
		"nothing is ever deleted: set retention: {outputs: 720h, events: 720h} for the workers, which is what new databases do, or 0 to keep all")
}
