package httpapi

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestABucketAtItsBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(2)
		want := func(what string, got, want time.Duration) {
			t.Helper()
			if got != want {
				t.Errorf("%s: wait %s, want %s", what, got, want)
			}
		}
		if l.exhausted("a") {
			t.Error("who never came has nothing left")
		}
		want("the first", l.take("a"), 0)
		if l.exhausted("a") {
			t.Error("who has exactly one left has nothing left")
		}
		want("the second", l.take("a"), 0)
		want("one too many", l.take("a"), time.Second/2)
		want("another's", l.take("b"), 0)
		if !l.exhausted("a") {
			t.Error("who has none left has some")
		}
		<-time.After(time.Second/2 - time.Nanosecond)
		if !l.exhausted("a") || l.take("a") == 0 {
			t.Error("one is there a nanosecond too soon")
		}
		<-time.After(time.Nanosecond)
		if l.exhausted("a") {
			t.Error("one is not there when it should be")
		}
		want("the next", l.take("a"), 0)
		<-time.After(time.Hour)
		want("after an hour, the first", l.take("a"), 0)
		want("the second", l.take("a"), 0)
		want("no more than a second's worth", l.take("a"), time.Second/2)
	})
}

func TestWhoIsGuessing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(1)
		want := func(what string, secret string, want bool) {
			t.Helper()
			if got := l.blocks("a", secret); got != want {
				t.Errorf("%s: guessing is %v", what, got)
			}
		}
		want("there is some left", "unknown", false)
		l.take("a")
		l.confirm("known")
		want("nothing is left", "unknown", true)
		want("it was met", "known", false)
		want("another is alike", "known ", true)
		l.forget("unknown")
		want("another was forgotten", "known", false)
		l.forget("known")
		want("it was forgotten", "known", true)
		l.confirm("known")
		<-time.After(confirmedFor - time.Nanosecond)
		l.take("a")
		want("it was met a moment less than long ago", "known", false)
		<-time.After(time.Nanosecond)
		want("it was met long ago", "known", true)
		l.confirm("known")
		want("it was met again", "known", false)
		for i := range maxBuckets {
			l.confirm(fmt.Sprint(i))
		}
		if n := len(l.confirmed); n > maxBuckets {
			t.Errorf("%d secrets are kept", n)
		}
	})
}

func TestBucketsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(1)
		l.take("old")
		<-time.After(time.Nanosecond)
		for i := range maxBuckets - 2 {
			l.take(fmt.Sprint(i))
		}
		<-time.After(time.Second)
		l.take("last") // fits
		if n := len(l.buckets); n != maxBuckets {
			t.Errorf("%d buckets are kept, want %d", n, maxBuckets)
		}
		if l.take("one more"); len(l.buckets) != maxBuckets {
			t.Errorf("%d buckets are kept: those that are full for longer than a second go, want %d",
				len(l.buckets), maxBuckets)
		}
		if _, kept := l.buckets["old"]; kept {
			t.Error("the oldest is kept")
		}
		<-time.After(time.Nanosecond)
		if l.take("and one more"); len(l.buckets) != 3 {
			t.Errorf("%d buckets are kept, want 3", len(l.buckets))
		}
	})
}
