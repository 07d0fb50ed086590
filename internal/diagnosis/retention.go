package diagnosis

import (
	"context"
	"fmt"
	"time"

	"turnkeeper/internal/retention"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// examineRetention reports how long each class is kept.
func examineRetention(ctx context.Context, d *Report, set Settings, store Store, c words.Clock) {
	kept, err := store.KeptFor(ctx)
	var stored operate.StoredParts
	if err == nil {
		stored, err = store.StoredParts(ctx)
	}
	if err != nil {
		d.Unread("retention", err)
		return
	}
	judgeRetention(d, set.Retention, kept, stored, c)
}

// A database has grown if it has grownBytes of what retention could delete, and some of it is older than grownFor.
const (
	grownBytes = 1 << 30
	grownFor   = 30 * 24 * time.Hour
)

// judgeRetention proposes a retention if nobody has decided on one and the database has grown. kept is what the
// database says.
func judgeRetention(d *Report, set retention.Policy, kept time.Duration, stored operate.StoredParts, c words.Clock) {
	found := "by the settings of this process: " + set.With(kept).String()
	grown := stored.Bytes >= grownBytes && !stored.Oldest.IsZero() && c.Now.Sub(stored.Oldest) > grownFor
	if grown {
		found += fmt.Sprintf("; the journal, outputs and leases have %.1f GiB, the oldest since %s",
			float64(stored.Bytes)/(1<<30), c.Moment(stored.Oldest))
	}
	d.Judge(!grown || !set.Undecided(kept), Warn, "retention", found,
		"nothing is ever deleted: set retention: {outputs: 720h, events: 720h} for the workers, which is what new databases do, or 0 to keep all")
}
