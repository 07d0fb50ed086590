package grants

import (
	"testing"
	"time"

	"turnkeeper/storage/internal/dbsqlc"
)

// began is when the looks of these tests begin.
var began = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// lookAt returns the snapshot of a look ms milliseconds after began, in the transaction own; 0: without an id.
func lookAt(ms int, own int64) dbsqlc.SnapshotRow {
	return dbsqlc.SnapshotRow{Now: began.Add(time.Duration(ms) * time.Millisecond), OwnID: own}
}

// TestLooksThatAreKept makes looks in short distances, also with a clock that is set back, and without a transaction
// id.
func TestLooksThatAreKept(t *testing.T) {
	f := &floor{}
	for i, c := range []struct {
		ms   int
		own  int64
		kept bool
	}{{0, 0, false}, {0, 5, true}, {99, 6, false}, {100, 7, true}, {150, 0, false}, {199, 8, false}, {201, 9, true},
		{102, 10, false}, {101, 11, true}, {190, 12, false}, {300, 0, false}, {301, 13, true}} {
		before := len(f.looks)
		f.saw(lookAt(c.ms, c.own))
		if kept := len(f.looks) > before; kept != c.kept || kept && f.looks[before].own != c.own {
			t.Errorf("look %d at %d ms is kept: %t; %v", i, c.ms, kept, f.looks)
		}
	}
}

// TestTheNewestLookBeforeATransaction asks for the look before the oldest open transaction, with fewer looks than are
// kept, with as many, and with one more, for which the first is forgotten.
func TestTheNewestLookBeforeATransaction(t *testing.T) {
	f := &floor{}
	saw := func(n int) { f.saw(lookAt(100*n, 10*int64(n))) } // from 1
	check := func(open int64, n int) {
		t.Helper()
		want := time.Time{}
		if n > 0 {
			want = began.Add(time.Duration(n)*100*time.Millisecond - 2*time.Second)
		}
		if got := f.unseen(open); !got.Equal(want) {
			t.Errorf("after %d looks, before the transaction %d all is seen up to %s, want %s", len(f.looks), open, got,
				want)
		}
	}
	check(15, 0)
	for n := 1; n <= 39; n++ {
		saw(n)
	}
	check(10, 0)
	check(11, 1)
	saw(40)
	check(11, 1)
	check(400, 39)
	check(401, 40)
	saw(41)
	check(11, 0)
	check(20, 0)
	check(21, 2)
	check(1000, 41)
}

// TestWherePartialLooksBegin sets the floor by full looks.
func TestWherePartialLooksBegin(t *testing.T) {
	const second = 1000
	held := func(row dbsqlc.SnapshotRow, ms int) dbsqlc.SnapshotRow {
		row.HeldFrom = lookAt(ms, 0).Now
		return row
	}
	waiting := func(row dbsqlc.SnapshotRow, ms int) dbsqlc.SnapshotRow {
		row.WaitingFrom = lookAt(ms, 0).Now
		return row
	}
	now := lookAt(100*second, 30)
	now.FirstOpen = 20
	none := held(waiting(now, 1000*second), 1000*second)
	notHeld := none
	notHeld.HeldFrom = time.Unix(0, 0)
	for name, c := range map[string]struct {
		row           dbsqlc.SnapshotRow
		waiting, held int // milliseconds after began; 0: the beginning
	}{
		"nothing waits or is held":       {none, 88 * second, 158 * second},
		"none is held":                   {notHeld, 88 * second, 158 * second},
		"one waits from before":          {waiting(none, 87*second), 87 * second, 158 * second},
		"one waits from after":           {waiting(none, 89*second), 88 * second, 158 * second},
		"one is held from before":        {held(none, 157*second), 88 * second, 157 * second},
		"one is held from after":         {held(none, 159*second), 88 * second, 158 * second},
		"a transaction is open for long": {waiting(withOpen(none, 10), 87*second), 0, 158 * second},
	} {
		f := &floor{}
		f.setTTL(time.Minute)
		f.saw(lookAt(90*second, 10))
		f.saw(lookAt(91*second, 20))
		f.set(c.row)
		l := f.partial()
		want := time.Time{}
		if c.waiting > 0 {
			want = lookAt(c.waiting, 0).Now
		}
		if !l.waiting.Equal(want) || !l.ordered.Equal(want) || !l.held.Equal(lookAt(c.held, 0).Now) {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// A message may be ahead of one that a partial look finds although the look begins behind it, if the last full look
// passed over messages of lanes that paused.
func TestOrderBehindMessagesPassedOver(t *testing.T) {
	f := &floor{}
	f.saw(lookAt(90_000, 10))
	for _, passed := range []bool{true, false} {
		row := withOpen(lookAt(100_000, 30), 20)
		row.WaitingFrom, row.PassedSome = row.Now, passed
		f.set(row)
		if l := f.partial(); l.waiting.IsZero() || l.ordered.IsZero() != passed {
			t.Errorf("passed over some %v: %+v", passed, l)
		}
	}
}

func withOpen(row dbsqlc.SnapshotRow, first int64) dbsqlc.SnapshotRow {
	row.FirstOpen = first
	return row
}

// TestHowManyHeadsALookAsksFor tries numbers of free slots around both limits.
func TestHowManyHeadsALookAsksFor(t *testing.T) {
	for room, want := range map[int64]int{0: 8, 3: 8, 4: 8, 5: 10, 50: 100, 51: 101, 52: 101, 1000: 101} {
		f := &floor{}
		f.setRoom(room)
		if heads := f.partial().heads; heads != want {
			t.Errorf("with %d free slots a look asks for %d heads, want %d", room, heads, want)
		}
	}
}

// TestAfterALongScan makes scans that take about as long as the next one need not wait for.
func TestAfterALongScan(t *testing.T) {
	for took, wait := range map[time.Duration]time.Duration{
		19 * time.Millisecond: 0, 20 * time.Millisecond: 200 * time.Millisecond,
		30 * time.Millisecond: 300 * time.Millisecond,
	} {
		s := laneScan{long: longScan}
		if s.took(began.Add(-took), began); !s.due(began.Add(wait)) || wait > 0 && s.due(began.Add(wait-1)) {
			t.Errorf("after a scan of %s the next one is not due after %s", took, wait)
		}
		left, ok := s.until(began)
		if ok != (wait > 0) || ok && left != wait {
			t.Errorf("after a scan of %s the next one is due in %s, %t", took, left, ok)
		}
	}
}
