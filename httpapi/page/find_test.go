package page

import (
	"strings"
	"testing"
	"time"
)

// TestASearchThatLookedAtAPart checks that a page without results links to the next page if the search is not finished.
func TestASearchThatLookedAtAPart(t *testing.T) {
	for _, p := range []Page{Turns{Listing: Listing{Next: "/on?cursor=7", Find: &Find{Further: true}}},
		Inbox{Listing: Listing{Next: "/on?cursor=7", Find: &Find{Further: true}}}} {
		var b strings.Builder
		if err := Write(&b, Frame{Now: time.Unix(0, 0)}, p); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), `<a href="/on?cursor=7">Search further</a>`) {
			t.Errorf("%s: %s", p.title(), b.String())
		}
	}
}
